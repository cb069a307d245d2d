// RapidCheck properties inside doctest. RC_PARAMS sets the number of instances and the seed.
#pragma once

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <string>
#include <utility>

namespace orch::test {

/// Fails the test and prints the smallest counterexample that RapidCheck finds.
template <class Property>
void check_property(const std::string& name, Property&& property) {
  CHECK_MESSAGE(rc::check(name, std::forward<Property>(property)), name);
}

}  // namespace orch::test

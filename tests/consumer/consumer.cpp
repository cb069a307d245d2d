#include <cstdio>
#include <orchmllm/orchmllm.hpp>
#include <vector>

int main() {
  const std::vector<orch::Cost> costs{9, 8, 7, 6, 5, 5, 4, 3};
  const orch::Assignment plan = orch::balance::greedy(costs, 3);
  std::printf("max %llu bound %llu\n", static_cast<unsigned long long>(plan.max_cost()),
              static_cast<unsigned long long>(plan.lower_bound));
  return plan.max_cost() <= 17 ? 0 : 1;
}

# Stb::Stb from pkg-config: stb.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(Stb QUIET IMPORTED_TARGET GLOBAL stb)
endif()
if(Stb_FOUND AND NOT TARGET Stb::Stb)
  add_library(Stb::Stb ALIAS PkgConfig::Stb)
endif()

# WebP::WebP from pkg-config: libwebp.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(WebP QUIET IMPORTED_TARGET GLOBAL libwebp)
endif()
if(WebP_FOUND AND NOT TARGET WebP::WebP)
  add_library(WebP::WebP ALIAS PkgConfig::WebP)
endif()

# Exif::Exif from pkg-config: libexif.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(Exif QUIET IMPORTED_TARGET GLOBAL libexif)
endif()
if(Exif_FOUND AND NOT TARGET Exif::Exif)
  add_library(Exif::Exif ALIAS PkgConfig::Exif)
endif()

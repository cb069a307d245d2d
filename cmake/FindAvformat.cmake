# Avformat::Avformat from pkg-config: libavformat libavcodec libavutil.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(Avformat QUIET IMPORTED_TARGET GLOBAL libavformat libavcodec libavutil)
endif()
if(Avformat_FOUND AND NOT TARGET Avformat::Avformat)
  add_library(Avformat::Avformat ALIAS PkgConfig::Avformat)
endif()

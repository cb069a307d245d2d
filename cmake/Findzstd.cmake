# zstd::libzstd from Debian's libzstd-dev, which ships no CMake package of its own.
find_path(zstd_INCLUDE_DIR zstd.h)
find_library(zstd_LIBRARY zstd)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(zstd DEFAULT_MSG zstd_LIBRARY zstd_INCLUDE_DIR)
if(zstd_FOUND AND NOT TARGET zstd::libzstd)
  add_library(zstd::libzstd UNKNOWN IMPORTED)
  set_target_properties(zstd::libzstd PROPERTIES IMPORTED_LOCATION ${zstd_LIBRARY}
                                                 INTERFACE_INCLUDE_DIRECTORIES ${zstd_INCLUDE_DIR})
endif()
mark_as_advanced(zstd_INCLUDE_DIR zstd_LIBRARY)

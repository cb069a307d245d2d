# LPSolve::LPSolve from Debian's liblpsolve55-dev: the header is <lpsolve/lp_lib.h>, the shared library stands in a folder
# of its own (the static one would need more libraries), so programs carry that folder as their run path.
find_path(LPSolve_INCLUDE_DIR lpsolve/lp_lib.h)
find_library(LPSolve_LIBRARY NAMES liblpsolve55.so PATH_SUFFIXES lp_solve)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LPSolve DEFAULT_MSG LPSolve_LIBRARY LPSolve_INCLUDE_DIR)
if(LPSolve_FOUND AND NOT TARGET LPSolve::LPSolve)
  add_library(LPSolve::LPSolve UNKNOWN IMPORTED)
  set_target_properties(LPSolve::LPSolve PROPERTIES IMPORTED_LOCATION ${LPSolve_LIBRARY}
                                                    INTERFACE_INCLUDE_DIRECTORIES ${LPSolve_INCLUDE_DIR}
                                                    INTERFACE_LINK_LIBRARIES "dl;m")
endif()
mark_as_advanced(LPSolve_INCLUDE_DIR LPSolve_LIBRARY)

# Targets, flags, installation.

# A header-only target orchmllm::NAME with its own export set, so that a consumer finds only what it asks for.
function(orchmllm_header_library NAME)
  if(NAME STREQUAL "orchmllm")
    set(target orchmllm)
  else()
    set(target orchmllm_${NAME})
  endif()
  add_library(${target} INTERFACE)
  add_library(orchmllm::${NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${NAME})
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  orchmllm_export(${target} ${NAME})
endfunction()

function(orchmllm_export TARGET NAME)
  install(TARGETS ${TARGET} EXPORT orchmllm-${NAME})
  install(EXPORT orchmllm-${NAME} NAMESPACE orchmllm:: FILE orchmllm-${NAME}.cmake
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/orchmllm)
endfunction()

# Flags of everything that this project compiles itself. No fused multiply-add contraction: the simulator's doubles
# are the same at every optimisation level and on every architecture.
add_library(orchmllm_flags INTERFACE)
target_compile_options(orchmllm_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror
                                                -ffp-contract=off)
if(ORCHMLLM_SANITIZE)
  target_compile_options(orchmllm_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
                                                  -fno-omit-frame-pointer)
  target_link_options(orchmllm_flags INTERFACE -fsanitize=address,undefined)
endif()

function(orchmllm_install_package)
  set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/orchmllm)
  configure_package_config_file(cmake/orchmllm-config.cmake.in ${PROJECT_BINARY_DIR}/orchmllm-config.cmake
                                INSTALL_DESTINATION ${config_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/orchmllm-config-version.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/orchmllm-config.cmake ${PROJECT_BINARY_DIR}/orchmllm-config-version.cmake
          DESTINATION ${config_dir})
  install(DIRECTORY include/orchmllm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endfunction()

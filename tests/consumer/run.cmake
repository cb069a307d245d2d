# Installs (for find_package), configures, builds and runs the consumer in WORK.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
if(NOT WAY STREQUAL "add_subdirectory")
  # Configured for itself, without any optional part: what a packager of the headers alone would do, or of the runtime on
  # GPUs.
  set(parts -DORCHMLLM_BUILD_RUNTIME=OFF)
  if(WAY STREQUAL "runtime_nccl")
    set(parts -DORCHMLLM_BUILD_RUNTIME=ON -DORCHMLLM_CUDA=ON -DCMAKE_CUDA_COMPILER=${CUDA_COMPILER}
              -DCMAKE_CUDA_ARCHITECTURES=90-virtual -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
  endif()
  run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/library -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${COMPILER}
      -DCMAKE_INSTALL_PREFIX=${WORK}/prefix -DORCHMLLM_BUILD_SIM=OFF -DORCHMLLM_BUILD_APPS=OFF ${parts}
      -DORCHMLLM_BUILD_TESTS=OFF -DCMAKE_DISABLE_FIND_PACKAGE_simdjson=ON -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON)
  run(${CMAKE_COMMAND} --build ${WORK}/library)
  run(${CMAKE_COMMAND} --install ${WORK}/library)
endif()
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/consumer -B ${WORK}/build -G ${GENERATOR} -DWAY=${WAY} -DSOURCE=${SOURCE}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${WORK}/prefix)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)

# Two commands for a fresh Debian machine: `make demo` and `make test`. Both install what is missing, build, and run.
.PHONY: demo test format clean

demo:
	@scripts/install_packages.sh demo
	@cmake --preset release -DORCHMLLM_BUILD_TESTS=OFF
	@cmake --build --preset release --target orch
	@scripts/demo.sh

test:
	@scripts/install_packages.sh test
	@scripts/build.sh dev
	@ctest --preset dev --parallel "$$(($$(nproc) + 1))" # tests of ranks mostly wait

format:
	@git ls-files '*.hpp' '*.cpp' | xargs clang-format -i

clean:
	rm -rf build out

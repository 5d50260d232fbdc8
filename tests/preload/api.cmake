# cuda_api.def against CUDA's own headers and libraries. The wheels lie where
# tests/run.sh puts them; without them these tests fail.
set(wheels ${CMAKE_BINARY_DIR}/cuda_wheels)

add_test(NAME api_coverage_test
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/api_coverage_test.py
    --wheels ${wheels})
set_tests_properties(api_coverage_test PROPERTIES LABELS unit TIMEOUT 300)

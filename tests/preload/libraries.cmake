# SPDX-License-Identifier: Apache-2.0
# Entry points of NCCL, cuBLAS and cuDNN, simulated: the same client, however a
# program may be linked to them.
set(fake_libraries fake_nccl fake_cublas fake_cublaslt fake_cudnn fake_cudart)

# library_client(target link options...)
function(library_client target)
  add_executable(${target} library_client.cc)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE LINKED)
  target_compile_options(${target} PRIVATE -O2 -Wall -Wextra
    -fasynchronous-unwind-tables)
  target_link_libraries(${target} PRIVATE ${fake_libraries} Threads::Threads
    ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE -Wl,--no-as-needed ${ARGN})
endfunction()
library_client(library_client_lazy -Wl,-z,lazy)
library_client(library_client_now -Wl,-z,now -Wl,-z,relro)
library_client(library_client_fixed -no-pie -Wl,-z,lazy)
target_compile_options(library_client_fixed PRIVATE -fno-pie)
library_client(library_client_noplt -Wl,-z,now -Wl,-z,relro)
target_compile_options(library_client_noplt PRIVATE -fno-plt)

add_executable(library_client_host library_client.cc)
target_compile_definitions(library_client_host PRIVATE _GNU_SOURCE)
target_compile_options(library_client_host PRIVATE -O2 -Wall -Wextra)
target_include_directories(library_client_host PRIVATE
  ${CMAKE_SOURCE_DIR}/tests/fakes)
target_link_libraries(library_client_host PRIVATE Threads::Threads
  ${CMAKE_DL_LIBS})

foreach(bind IN ITEMS lazy now)
  add_library(library_plug_in_${bind} MODULE library_plug_in.cc)
  target_compile_options(library_plug_in_${bind} PRIVATE -O2 -Wall -Wextra)
  target_link_libraries(library_plug_in_${bind} PRIVATE ${fake_libraries})
  target_link_options(library_plug_in_${bind} PRIVATE -Wl,-z,${bind}
    -Wl,-z,relro)
  set_target_properties(library_plug_in_${bind} PROPERTIES PREFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${dir})
endforeach()

add_library(library_plug_in_read_only MODULE library_plug_in_read_only.c)
target_link_libraries(library_plug_in_read_only PRIVATE fake_nccl)
target_link_options(library_plug_in_read_only PRIVATE -Wl,-z,notext
  -Wl,--no-as-needed)
add_library(library_many SHARED library_many.c)
# No optimisation: 4,400 functions of one line.
target_compile_options(library_many PRIVATE -O0)
set_target_properties(library_plug_in_read_only library_many PROPERTIES
  PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${dir})
set_target_properties(library_many PROPERTIES OUTPUT_NAME libcudnn_many)

add_test(NAME library_test
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/library_test.py
    --shim $<TARGET_FILE:ingero_cuda> --bin ${CMAKE_CURRENT_BINARY_DIR}
    --lib ${dir} --fakes ${CMAKE_BINARY_DIR}/lib/fake_cuda
    --ingero $<TARGET_FILE:ingero>)
set_tests_properties(library_test PROPERTIES LABELS unit TIMEOUT 300)

# SPDX-License-Identifier: Apache-2.0
# What the shim sees of a program, and says of what it does not see.
add_executable(cover_client cover_client.c)
target_compile_definitions(cover_client PRIVATE _GNU_SOURCE)
target_compile_options(cover_client PRIVATE -O2 -Wall -Wextra)
target_link_libraries(cover_client PRIVATE ${CMAKE_DL_LIBS})

set(cover_dir ${CMAKE_BINARY_DIR}/lib/cover_test)
# cover_part(part file folder)
function(cover_part part file folder)
  add_library(cover_part_${part} SHARED cover_parts.c)
  target_compile_definitions(cover_part_${part} PRIVATE _GNU_SOURCE
    PART=${part})
  target_link_libraries(cover_part_${part} PRIVATE ${CMAKE_DL_LIBS})
  set_target_properties(cover_part_${part} PROPERTIES PREFIX "" SUFFIX ""
    OUTPUT_NAME ${file} NO_SONAME ON BUILD_RPATH "$ORIGIN/leaf"
    LIBRARY_OUTPUT_DIRECTORY ${cover_dir}/${folder})
  target_link_options(cover_part_${part} PRIVATE -Wl,--enable-new-dtags)
  add_dependencies(cover_client cover_part_${part})
endfunction()
cover_part(1 libcuda.so.1 driver)
cover_part(2 libcover_opener.so .)
cover_part(3 libcover_leaf.so leaf)

# With the real header where it is, and always with the stand-in.
add_executable(nvtx_client_stand_in nvtx_client.c)
find_path(INGERO_NVTX3 nvtx3/nvToolsExt.h
  PATHS /usr/local/cuda/include PATH_SUFFIXES targets/x86_64-linux/include)
set(nvtx_clients nvtx_client_stand_in)
if(INGERO_NVTX3)
  add_executable(nvtx_client nvtx_client.c)
  target_compile_definitions(nvtx_client PRIVATE HAVE_NVTX3)
  target_include_directories(nvtx_client SYSTEM PRIVATE ${INGERO_NVTX3})
  list(APPEND nvtx_clients nvtx_client)
endif()
foreach(client IN LISTS nvtx_clients)
  target_compile_definitions(${client} PRIVATE _GNU_SOURCE)
  target_compile_options(${client} PRIVATE -O2)
  target_include_directories(${client} PRIVATE ${CMAKE_SOURCE_DIR})
  target_link_libraries(${client} PRIVATE small_rt13 Threads::Threads
    ${CMAKE_DL_LIBS})
endforeach()

add_test(NAME cover_test
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/cover_test.py
    --shim $<TARGET_FILE:ingero_cuda> --bin ${CMAKE_CURRENT_BINARY_DIR}
    --lib ${dir} --parts ${cover_dir})
set_tests_properties(cover_test PROPERTIES LABELS unit TIMEOUT 120)

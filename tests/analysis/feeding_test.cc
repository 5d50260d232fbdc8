// SPDX-License-Identifier: Apache-2.0
#include "analysis/feeding.h"

#include <gtest/gtest.h>

#include "tests/support/trace_text.h"

namespace ingero::testing {
namespace {

using analysis::CallClass;
using analysis::FeedingModel;
using analysis::FeedPiece;
using analysis::FeedState;

constexpr char kHead[] =
    "span 0 1s\n"
    "process 1 a cuda\n"
    "thread 2 1\n"
    "func launch launch\n"
    "func cuLaunch launch driver\n"
    "func graph graph-launch\n"
    "func copyAsync copy-async\n"
    "func copy copy\n"
    "func streamSync sync-stream\n"
    "func cuStreamSync sync-stream driver\n"
    "func deviceSync sync-device\n"
    "func eventSync sync-event\n"
    "func eventQuery query-event\n"
    "func eventRecord event-record\n"
    "func streamQuery query-stream\n"
    "func cudaFree free\n"
    "func moduleLoad module\n"
    "func library other library\n"
    "func cudaSetDevice device\n"
    "func cuCtxCreate_v2 context driver\n"
    "func cuCtxSetCurrent context driver\n"
    "func cuDevicePrimaryCtxRetain context driver\n"
    "func cuGreenCtxCreate context driver\n"
    "func cuCtxSynchronize sync-device driver\n";

// "idle[10,20) busy[20,30)" in us, of device 0.
std::string Pieces(const std::string& body, uint32_t device = 0) {
  Result<MemoryTrace> trace = ParseTrace(kHead + body);
  EXPECT_TRUE(trace.ok()) << trace.status().message();
  if (!trace.ok()) return "";
  const auto traits = analysis::MakeFuncTraits(trace->function_list);
  FeedingModel model(&traits);
  std::vector<FeedPiece> pieces;
  for (const auto& call : trace->calls) model.OnCall(call, &pieces);
  model.AdvanceTo(model.last_end(), &pieces);
  model.OpenPieces(model.last_end(), &pieces);
  static const char* const kNames[] = {"?",       "idle", "busy",
                                       "unknown", "host", "cold"};
  std::string out;
  FeedPiece last;
  const auto print = [&] {
    if (last.range.empty()) return;
    if (!out.empty()) out += " ";
    out += kNames[static_cast<int>(last.state)] + std::string("[") +
           std::to_string(last.range.begin.value / 1000) + "," +
           std::to_string(last.range.end.value / 1000) + ")";
  };
  for (const FeedPiece& p : pieces) {
    if (p.device != device) continue;
    if (last.state == p.state && last.range.end == p.range.begin &&
        !last.range.empty()) {
      last.range.end = p.range.end;
      continue;
    }
    print();
    last = p;
  }
  print();
  return out;
}

TEST(FeedingTest, SyncProvesBusyThenIdle) {
  EXPECT_EQ(Pieces("call 10us 15us 1 launch\n"
                   "call 20us 50us 1 streamSync\n"
                   "call 70us 75us 1 launch\n"
                   "call 80us 90us 1 streamSync\n"),
            "unknown[10,20) busy[20,50) idle[50,70) unknown[70,80) "
            "busy[80,90)");
}

TEST(FeedingTest, OtherStreamKeepsTheQueueUnknown) {
  EXPECT_EQ(Pieces("call 10us 15us 1 launch stream=7\n"
                   "call 16us 17us 1 launch stream=8\n"
                   "call 20us 50us 1 streamSync stream=7\n"
                   "call 70us 90us 1 deviceSync\n"
                   "call 95us 96us 1 launch\n"),
            "unknown[10,20) busy[20,50) unknown[50,70) busy[70,90) "
            "idle[90,95) unknown[95,96)");
}

TEST(FeedingTest, LegacyAndPerThreadHandlesAreTheDefaultStream) {
  EXPECT_EQ(Pieces("call 10us 15us 1 launch stream=1\n"
                   "call 20us 50us 1 streamSync stream=0\n"
                   "call 70us 75us 1 launch stream=2\n"),
            "unknown[10,20) busy[20,50) idle[50,70) unknown[70,75)");
}

TEST(FeedingTest, SyncOfTheOnlyContextDrainsAll) {
  const std::string rest =
      "call 10us 15us 1 launch\n"
      "call 20us 50us 1 cuCtxSynchronize\n"
      "call 70us 75us 1 launch\n";
  const char* const drained =
      "unknown[10,20) busy[20,50) idle[50,70) unknown[70,75)";
  EXPECT_EQ(Pieces(rest), drained);
  EXPECT_EQ(Pieces("call 1us 2us 1 cuCtxCreate_v2 object=11\n"
                   "call 3us 4us 1 cuCtxSetCurrent object=11\n" + rest),
            drained);
  EXPECT_EQ(Pieces("call 1us 2us 1 cuDevicePrimaryCtxRetain object=12\n"
                   "call 3us 4us 1 cuCtxSetCurrent object=12\n" + rest),
            drained);
}

TEST(FeedingTest, SyncOfOneOfSeveralContextsProvesNothing) {
  const std::string rest =
      "call 10us 15us 1 launch\n"
      "call 20us 50us 1 cuCtxSynchronize\n"
      "call 70us 75us 1 launch\n";
  for (const char* other :
       {"cuGreenCtxCreate object=22", "cuDevicePrimaryCtxRetain object=22",
        "cuCtxCreate_v2 object=22"})
    EXPECT_EQ(Pieces("call 1us 2us 1 cuCtxCreate_v2 object=11\n"
                     "call 3us 4us 1 " + std::string(other) + "\n" + rest),
              "unknown[10,75)")
        << other;
  // One that failed makes none.
  EXPECT_EQ(Pieces("call 1us 2us 1 cuGreenCtxCreate result=2\n" + rest),
            "unknown[10,20) busy[20,50) idle[50,70) unknown[70,75)");
}

TEST(FeedingTest, DeviceSyncWaitsForGreenContextsUnlessOneIsCurrent) {
  const std::string rest =
      "call 10us 15us 1 launch stream=7\n"
      "call 20us 50us 1 deviceSync\n"
      "call 70us 75us 1 launch\n";
  const char* const drained =
      "unknown[10,20) busy[20,50) idle[50,70) unknown[70,75)";
  const std::string green = "call 1us 2us 1 cuGreenCtxCreate object=22\n";
  EXPECT_EQ(Pieces(green + rest), drained);
  EXPECT_EQ(Pieces(green + "call 3us 4us 1 cuCtxSetCurrent object=22\n" + rest),
            "unknown[10,75)");
  // Another thread's current context is no matter.
  EXPECT_EQ(Pieces(green + "call 3us 4us 2 cuCtxSetCurrent object=22\n" + rest),
            drained);
  // An own context beside the primary one is not waited for.
  EXPECT_EQ(Pieces("call 1us 2us 1 cuDevicePrimaryCtxRetain object=5\n"
                   "call 3us 4us 2 cuCtxCreate_v2 object=11\n" + rest),
            "unknown[10,75)");
  // The runtime's own calls make the primary one current.
  EXPECT_EQ(Pieces(green +
                   "call 2us 6us 1 moduleLoad\n"
                   "call 3us 4us 1 cuCtxSetCurrent object=5 depth=1\n" + rest),
            drained);
}

TEST(FeedingTest, EventDrainsUpToItsRecordOnly) {
  EXPECT_EQ(Pieces("call 10us 15us 1 launch stream=7\n"
                   "call 16us 17us 1 eventRecord stream=7 object=99\n"
                   "call 20us 30us 1 eventSync object=99\n"
                   "call 40us 41us 1 launch stream=7\n"
                   "call 50us 60us 1 eventSync object=99\n"
                   "call 70us 71us 1 streamSync stream=7\n"),
            "unknown[10,20) busy[20,30) idle[30,40) unknown[40,70) "
            "busy[70,71)");
}

TEST(FeedingTest, SuccessfulQueryDrainsAndNotReadyProvesThatItWasBusy) {
  EXPECT_EQ(Pieces("call 10us 15us 1 launch\n"
                   "call 20us 21us 1 streamQuery result=600\n"
                   "call 30us 31us 1 streamQuery\n"
                   "call 40us 41us 1 launch\n"),
            "busy[10,20) unknown[20,31) idle[31,40) unknown[40,41)");
}

TEST(FeedingTest, DriverCallsInsideRuntimeCallsChangeNothing) {
  EXPECT_EQ(Pieces("call 10us 15us 1 launch\n"
                   "call 11us 14us 1 cuLaunch depth=1\n"
                   "call 20us 50us 1 streamSync\n"
                   "call 21us 48us 1 cuStreamSync depth=1\n"
                   "call 70us 75us 1 launch\n"),
            "unknown[10,20) busy[20,50) idle[50,70) unknown[70,75)");
}

TEST(FeedingTest, DrainInsideALibraryCallCountsAtItsEnd) {
  EXPECT_EQ(Pieces("call 5us 60us 1 library\n"
                   "call 10us 15us 1 cuLaunch depth=1\n"
                   "call 20us 50us 1 cuStreamSync depth=1\n"
                   "call 70us 75us 1 launch\n"),
            "unknown[10,20) busy[20,50) unknown[50,60) idle[60,70) "
            "unknown[70,75)");
}

TEST(FeedingTest, WorkOfAnotherThreadDuringASyncStaysPending) {
  EXPECT_EQ(Pieces("call 10us 15us 1 launch\n"
                   "call 20us 50us 1 streamSync\n"
                   "call 30us 35us 2 launch\n"
                   "call 70us 75us 1 launch\n"),
            "unknown[10,20) busy[20,50) unknown[50,75)");
}

TEST(FeedingTest, FreeIsASynchronisationButFreeOfNullIsNot) {
  EXPECT_EQ(Pieces("call 10us 15us 1 launch\n"
                   "call 20us 21us 1 cudaFree\n"
                   "call 30us 60us 1 cudaFree object=0x1000\n"
                   "call 70us 71us 1 launch\n"),
            "unknown[10,30) busy[30,60) idle[60,70) unknown[70,71)");
}

TEST(FeedingTest, CapturedLaunchIsNoWork) {
  EXPECT_EQ(Pieces("call 5us 6us 1 launch\n"
                   "call 7us 8us 1 deviceSync\n"
                   "call 10us 15us 1 launch captured\n"
                   "call 70us 75us 1 graph\n"),
            "unknown[5,7) busy[7,8) idle[8,70) unknown[70,75)");
}

TEST(FeedingTest, PageableCopyWithAnEmptyQueueIsHostCopy) {
  EXPECT_EQ(Pieces("call 10us 40us 1 copyAsync h2d pageable bytes=1000000\n"
                   "call 41us 42us 1 streamSync\n"
                   "call 50us 51us 1 launch\n"),
            "host[10,40) unknown[40,41) busy[41,42) idle[42,50) "
            "unknown[50,51)");
  // Synchronous: nothing is left afterwards.
  EXPECT_EQ(Pieces("call 10us 40us 1 copy h2d pageable bytes=1000000\n"
                   "call 50us 51us 1 launch\n"),
            "host[10,40) idle[40,50) unknown[50,51)");
}

TEST(FeedingTest, PinnedSynchronousCopyIsGpuWork) {
  EXPECT_EQ(Pieces("call 10us 40us 1 copy h2d pinned bytes=1000000\n"
                   "call 50us 51us 1 launch\n"),
            "busy[10,40) idle[40,50) unknown[50,51)");
}

TEST(FeedingTest, SmallPageableUploadDoesNotWaitForTheStream) {
  EXPECT_EQ(Pieces("call 10us 11us 1 launch\n"
                   "call 20us 30us 1 copy h2d pageable bytes=4096\n"
                   "call 50us 51us 1 launch\n"),
            "unknown[10,51)");
}

TEST(FeedingTest, DownloadToPageableMemoryWaitsThenCopies) {
  // 80,000 bytes take at least 10 us; before that it waited for the kernel.
  EXPECT_EQ(Pieces("call 10us 11us 1 launch\n"
                   "call 20us 60us 1 copyAsync d2h pageable bytes=80000\n"
                   "call 70us 71us 1 launch\n"),
            "unknown[10,20) busy[20,50) host[50,60) idle[60,70) "
            "unknown[70,71)");
}

TEST(FeedingTest, KernelsThatWaitForOtherGpusAreKnownByName) {
  for (const char* name :
       {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
        "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)",
        "_ZN4vllm26cross_device_reduce_2stageI6__halfLi8EEEvPNS_8RankDataE",
        "multimem_one_shot_all_reduce_kernel"})
    EXPECT_TRUE(analysis::WaitsForPeers(name)) << name;
  for (const char* name :
       {"", "nccl", "void at::native::reduce_kernel<512, 1>(ReduceOp)",
        "volta_sgemm_128x64_nn", "cub::DeviceReduceKernel"})
    EXPECT_FALSE(analysis::WaitsForPeers(name)) << name;
}

TEST(FeedingTest, FirstUseWithAnEmptyQueueIsColdStart) {
  EXPECT_EQ(Pieces("call 10us 300us 1 launch first_use\n"
                   "call 310us 320us 1 streamSync\n"
                   "call 330us 430us 1 moduleLoad\n"
                   "call 440us 445us 1 launch\n"),
            "cold[10,300) unknown[300,310) busy[310,320) idle[320,330) "
            "cold[330,430) idle[430,440) unknown[440,445)");
}

TEST(FeedingTest, LaunchBehindAFullQueueIsBusy) {
  const std::string full =
      "repeat 1021 1us\n"
      "call 10us 10.5us 1 launch\n"
      "end\n"
      "call 2000us 2100us 1 launch\n"
      "call 2200us 2201us 1 launch\n";
  EXPECT_EQ(Pieces(full),
            "unknown[10,2000) busy[2000,2100) unknown[2100,2201)");
  // As slow, but with a short queue: something else held it up.
  EXPECT_EQ(Pieces("repeat 500 1us\n"
                   "call 10us 10.5us 1 launch\n"
                   "end\n"
                   "call 2000us 2100us 1 launch\n"),
            "unknown[10,2100)");
}

TEST(FeedingTest, DevicesAreKeptApart) {
  const std::string body =
      "call 1us 2us 2 cudaSetDevice object=1\n"
      "call 10us 11us 1 launch\n"
      "call 12us 13us 2 launch\n"
      "call 20us 30us 1 deviceSync\n"
      "call 40us 50us 2 deviceSync\n"
      "call 60us 61us 1 launch\n"
      "call 70us 71us 2 launch\n";
  EXPECT_EQ(Pieces(body, 0),
            "unknown[10,20) busy[20,30) idle[30,60) unknown[60,71)");
  EXPECT_EQ(Pieces(body, 1),
            "unknown[12,40) busy[40,50) idle[50,70) unknown[70,71)");
}

TEST(FeedingTest, FailedSyncAndSyncInFlightProveNothing) {
  EXPECT_EQ(Pieces("call 10us 11us 1 launch\n"
                   "call 20us 30us 1 deviceSync result=700\n"
                   "call 40us 41us 1 launch\n"),
            "unknown[10,20) busy[20,30) unknown[30,41)");
  EXPECT_EQ(Pieces("call 10us 11us 1 launch\n"
                   "call 20us 90us 1 deviceSync no_end\n"),
            "unknown[10,20) busy[20,90)");
}

TEST(FeedingTest, ACheckpointGoesOnAsTheOriginal) {
  Result<MemoryTrace> trace =
      ParseTrace(kHead + std::string("repeat 50 10us\n"
                                     "call 10us 11us 1 launch\n"
                                     "call 12us 17us 1 streamSync\n"
                                     "end\n"));
  ASSERT_TRUE(trace.ok());
  const auto traits = analysis::MakeFuncTraits(trace->function_list);
  FeedingModel model(&traits);
  std::vector<FeedPiece> whole, first, rest;
  for (size_t i = 0; i < trace->calls.size(); ++i)
    model.OnCall(trace->calls[i], &whole);
  FeedingModel a(&traits);
  for (size_t i = 0; i < 41; ++i) a.OnCall(trace->calls[i], &first);
  FeedingModel b = a;
  for (size_t i = 41; i < trace->calls.size(); ++i)
    b.OnCall(trace->calls[i], &rest);
  ASSERT_EQ(whole.size(), first.size() + rest.size());
  for (size_t i = 0; i < rest.size(); ++i)
    EXPECT_EQ(whole[first.size() + i].range, rest[i].range);
}

// A program that records an event a step, each a new one, and waits for all
// work now and then, does not make the model larger and larger.
TEST(FeedingTest, EventsThatTheGpuHasReachedAreForgotten) {
  std::vector<analysis::Function> functions = {
      {"cudaLaunchKernel", analysis::Layer::kRuntime,
       analysis::CallClass::kLaunch},
      {"cudaEventRecord", analysis::Layer::kRuntime,
       analysis::CallClass::kEventRecord},
      {"cudaEventSynchronize", analysis::Layer::kRuntime,
       analysis::CallClass::kSyncEvent},
      {"cudaStreamSynchronize", analysis::Layer::kRuntime,
       analysis::CallClass::kSyncStream}};
  const auto traits = analysis::MakeFuncTraits(functions);
  FeedingModel kept(&traits), trimmed(&traits);
  std::vector<FeedPiece> pieces, same;
  size_t most = 0;
  const auto call = [&](int64_t at_us, uint32_t func, uint64_t object) {
    analysis::Call c;
    c.begin = Ns(at_us * 1000);
    c.end = c.begin + Ns(500);
    c.thread = 0;
    c.func = func;
    c.object = object;
    kept.OnCall(c, &pieces);
    trimmed.OnCall(c, &same);
    trimmed.Trim();
    most = std::max(most, trimmed.Bytes());
  };
  for (int64_t i = 0; i < 5000; ++i) {
    call(10 * i, 0, 1);
    call(10 * i + 1, 1, static_cast<uint64_t>(i));
    // One that was reached long ago, and one that may not have been.
    call(10 * i + 2, 2, static_cast<uint64_t>(i / 2));
    if (i % 16 == 0) call(10 * i + 3, 2, static_cast<uint64_t>(i - 1));
    if (i % 50 == 49) call(10 * i + 4, 3, 0);
  }
  ASSERT_GT(pieces.size(), 1000u);
  ASSERT_EQ(pieces.size(), same.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].range, same[i].range);
    EXPECT_EQ(pieces[i].state, same[i].state);
  }
  EXPECT_GT(kept.Bytes(), 5000 * sizeof(uint64_t));
  EXPECT_LT(most, 20'000u);
}

}  // namespace
}  // namespace ingero::testing

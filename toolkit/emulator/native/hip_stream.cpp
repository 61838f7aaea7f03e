// Streams, events and graphs. Work is done when it is submitted, in the order of submission, unless its stream is capturing.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>
#include <vector>

#include "hip.h"

struct Graph {
  std::vector<Work> nodes;
};
struct Capture {
  Graph* graph = new Graph;
  CaptureMode mode;
  Stream* origin;
  bool invalid = false;
  u64 id;
  std::set<Stream*> unjoined;  // other streams with work that the origin has not waited for
};
struct Stream {
  unsigned flags = 0;
  int priority = 0;
  std::shared_ptr<Capture> capture;
};
struct Event {
  bool recorded = false;
  timespec time{};
  std::shared_ptr<Capture> capture;  // recorded while capturing
  Stream* stream = nullptr;
};

static std::recursive_mutex mutex;
static std::set<Stream*> capturing;
static Stream legacy, per_thread;
static u64 captures = 0;

static bool is_legacy(Stream* stream) { return stream == nullptr || (size_t)stream == 1; }
static Stream& resolve(Stream* stream) { return is_legacy(stream) ? legacy : (size_t)stream == 2 ? per_thread : *stream; }

// A capture that met a call it does not permit stays invalid until it is ended.
static void invalidate_all() {
  for (Stream* stream : capturing) stream->capture->invalid = true;
}

Error forbid_while_capturing(bool relaxed_allows) {
  std::lock_guard lock(mutex);
  bool forbidden = std::any_of(capturing.begin(), capturing.end(), [&](Stream* stream) {
    return !(relaxed_allows && stream->capture->mode == hipStreamCaptureModeRelaxed);
  });
  if (!forbidden) return hipSuccess;
  invalidate_all();
  return fail(relaxed_allows ? hipErrorStreamCaptureUnsupported : hipErrorStreamCaptureImplicit);
}

Error submit(Stream* stream, Work work) {
  {
    std::lock_guard lock(mutex);
    Stream& s = resolve(stream);
    if (s.capture) {
      if (s.capture->invalid) return fail(hipErrorStreamCaptureInvalidated);
      s.capture->graph->nodes.push_back(std::move(work));
      if (&s != s.capture->origin) s.capture->unjoined.insert(&s);
      return hipSuccess;
    }
    // The null stream waits for all blocking streams, which would tie it to the capture.
    if (is_legacy(stream) && std::any_of(capturing.begin(), capturing.end(), [](Stream* c) { return !(c->flags & 1); })) {
      invalidate_all();
      return fail(hipErrorStreamCaptureImplicit);
    }
  }
  return work.run();
}

// ---- streams --------------------------------------------------------------------------------------------------------------

HIP int hipStreamCreateWithPriority(Stream** out, unsigned flags, int priority) {
  *out = new Stream{flags, priority, nullptr};
  return hipSuccess;
}
HIP int hipStreamCreateWithFlags(Stream** out, unsigned flags) { return hipStreamCreateWithPriority(out, flags, 0); }
HIP int hipStreamCreate(Stream** out) { return hipStreamCreateWithPriority(out, 0, 0); }
HIP int hipStreamDestroy(Stream* stream) {
  std::lock_guard lock(mutex);
  if ((size_t)stream <= 2) return fail(hipErrorInvalidHandle);
  capturing.erase(stream);
  delete stream;
  return hipSuccess;
}
HIP int hipStreamGetFlags(Stream* stream, unsigned* flags) {
  *flags = resolve(stream).flags;
  return hipSuccess;
}
HIP int hipStreamGetPriority(Stream* stream, int* priority) {
  *priority = resolve(stream).priority;
  return hipSuccess;
}
HIP int hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 1, *greatest = -1;
  return hipSuccess;
}
HIP int hipGetStreamDeviceId(Stream*) { return 0; }

static Error no_waiting(Stream* stream) {
  std::lock_guard lock(mutex);
  Stream& s = resolve(stream);
  if (s.capture) {
    s.capture->invalid = true;
    return fail(hipErrorStreamCaptureUnsupported);
  }
  return is_legacy(stream) ? forbid_while_capturing(false) : hipSuccess;
}
HIP int hipStreamSynchronize(Stream* stream) { return no_waiting(stream); }
HIP int hipStreamQuery(Stream* stream) { return no_waiting(stream); }
HIP int hipDeviceSynchronize() { return forbid_while_capturing(false); }

HIP int hipLaunchHostFunc(Stream* stream, void (*function)(void*), void* data) {
  return submit(stream, {"host function", [=] {
                           function(data);
                           return hipSuccess;
                         }});
}
HIP int hipStreamAddCallback(Stream* stream, void (*function)(Stream*, int, void*), void* data, unsigned) {
  {
    std::lock_guard lock(mutex);
    if (resolve(stream).capture) {
      resolve(stream).capture->invalid = true;
      return fail(hipErrorStreamCaptureUnsupported);
    }
  }
  function(stream, hipSuccess, data);
  return hipSuccess;
}

// ---- events ---------------------------------------------------------------------------------------------------------------

HIP int hipEventCreateWithFlags(Event** out, unsigned) {
  *out = new Event;
  return hipSuccess;
}
HIP int hipEventCreate(Event** out) { return hipEventCreateWithFlags(out, 0); }
HIP int hipEventDestroy(Event* event) {
  delete event;
  return hipSuccess;
}
HIP int hipEventRecord(Event* event, Stream* stream) {
  std::lock_guard lock(mutex);
  if (!event) return fail(hipErrorInvalidHandle);
  Stream& s = resolve(stream);
  event->capture = s.capture;
  event->stream = &s;
  event->recorded = true;
  if (!s.capture) clock_gettime(CLOCK_MONOTONIC, &event->time);
  return hipSuccess;
}
HIP int hipStreamWaitEvent(Stream* stream, Event* event, unsigned) {
  std::lock_guard lock(mutex);
  if (!event) return fail(hipErrorInvalidHandle);
  Stream& s = resolve(stream);
  if (!event->capture) return hipSuccess;
  if (s.capture && s.capture != event->capture) return fail(hipErrorStreamCaptureIsolation);
  if (!s.capture) {  // the stream joins the capture
    s.capture = event->capture;
    capturing.insert(&s);
  }
  if (&s != s.capture->origin)
    s.capture->unjoined.insert(&s);
  else
    s.capture->unjoined.erase(event->stream);
  return hipSuccess;
}
static Error event_outside_capture(Event* event) {
  std::lock_guard lock(mutex);
  if (!event) return fail(hipErrorInvalidHandle);
  if (!event->capture) return hipSuccess;
  event->capture->invalid = true;
  return fail(hipErrorCapturedEvent);
}
HIP int hipEventSynchronize(Event* event) { return event_outside_capture(event); }
HIP int hipEventQuery(Event* event) { return event_outside_capture(event); }
HIP int hipEventElapsedTime(float* milliseconds, Event* start, Event* stop) {
  if (!start || !stop || !start->recorded || !stop->recorded) return fail(hipErrorInvalidHandle);
  *milliseconds = (float)((double)(stop->time.tv_sec - start->time.tv_sec) * 1e3 +
                          (double)(stop->time.tv_nsec - start->time.tv_nsec) * 1e-6);
  return hipSuccess;
}

// ---- capture --------------------------------------------------------------------------------------------------------------

HIP int hipStreamBeginCapture(Stream* stream, int mode) {
  std::lock_guard lock(mutex);
  if (is_legacy(stream)) return fail(hipErrorStreamCaptureUnsupported);
  Stream& s = resolve(stream);
  if (s.capture) return fail(hipErrorIllegalState);
  if (mode < 0 || mode > 2) return fail(hipErrorInvalidValue);
  s.capture = std::make_shared<Capture>();
  s.capture->mode = (CaptureMode)mode;
  s.capture->origin = &s;
  s.capture->id = ++captures;
  capturing.insert(&s);
  return hipSuccess;
}
HIP int hipStreamEndCapture(Stream* stream, Graph** out) {
  std::lock_guard lock(mutex);
  if (out) *out = nullptr;
  Stream& s = resolve(stream);
  if (!s.capture || !out) return fail(s.capture ? hipErrorInvalidValue : hipErrorIllegalState);
  if (s.capture->origin != &s) return fail(hipErrorStreamCaptureUnmatched);
  std::shared_ptr<Capture> capture = s.capture;
  for (auto stream_ = capturing.begin(); stream_ != capturing.end();)
    if ((*stream_)->capture == capture) {
      (*stream_)->capture = nullptr;
      stream_ = capturing.erase(stream_);
    } else {
      ++stream_;
    }
  if (capture->invalid || !capture->unjoined.empty()) {
    delete capture->graph;
    return fail(capture->invalid ? hipErrorStreamCaptureInvalidated : hipErrorStreamCaptureUnjoined);
  }
  *out = capture->graph;
  return hipSuccess;
}
static CaptureStatus status(const Stream& s) {
  return !s.capture ? hipStreamCaptureStatusNone : s.capture->invalid ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive;
}
HIP int hipStreamIsCapturing(Stream* stream, int* out) {
  std::lock_guard lock(mutex);
  if (is_legacy(stream) && !capturing.empty() &&
      std::any_of(capturing.begin(), capturing.end(), [](Stream* c) { return !(c->flags & 1); }))
    return fail(hipErrorStreamCaptureImplicit);
  *out = status(resolve(stream));
  return hipSuccess;
}
HIP int hipStreamGetCaptureInfo(Stream* stream, int* out, unsigned long long* id) {
  std::lock_guard lock(mutex);
  Stream& s = resolve(stream);
  *out = status(s);
  if (id && s.capture) *id = s.capture->id;
  return hipSuccess;
}
HIP int hipStreamGetCaptureInfo_v2(Stream* stream, int* out, unsigned long long* id, Graph** graph, const void***, size_t* count) {
  std::lock_guard lock(mutex);
  Stream& s = resolve(stream);
  if (graph) *graph = s.capture ? s.capture->graph : nullptr;
  if (count) *count = 0;
  return hipStreamGetCaptureInfo(stream, out, id);
}

// ---- graphs ---------------------------------------------------------------------------------------------------------------

HIP int hipGraphInstantiate(Graph** out, Graph* graph, void**, char*, size_t) {
  if (!out || !graph) return fail(hipErrorInvalidValue);
  *out = new Graph(*graph);
  return hipSuccess;
}
HIP int hipGraphInstantiateWithFlags(Graph** out, Graph* graph, unsigned long long) {
  return hipGraphInstantiate(out, graph, nullptr, nullptr, 0);
}
HIP int hipGraphUpload(Graph* graph, Stream*) { return graph ? hipSuccess : fail(hipErrorInvalidValue); }
HIP int hipGraphLaunch(Graph* graph, Stream* stream) {
  if (!graph) return fail(hipErrorInvalidValue);
  for (const Work& node : graph->nodes)
    if (Error error = submit(stream, node)) return error;
  return hipSuccess;
}
HIP int hipGraphExecDestroy(Graph* graph) {
  delete graph;
  return hipSuccess;
}
HIP int hipGraphDestroy(Graph* graph) {
  delete graph;
  return hipSuccess;
}
HIP int hipGraphGetNodes(Graph* graph, void** nodes, size_t* count) {
  if (!graph || !count || nodes) return fail(hipErrorNotSupported, "hipGraphGetNodes gives the number of nodes only");
  *count = graph->nodes.size();
  return hipSuccess;
}
HIP int hipGraphDebugDotPrint(Graph* graph, const char* path, unsigned) {
  FILE* file = fopen(path, "w");
  if (!file) return fail(hipErrorFileNotFound, std::string("cannot write ") + path);
  fprintf(file, "digraph graph_1 {\n");
  for (size_t k = 0; k < graph->nodes.size(); ++k) {
    fprintf(file, "  node%zu [label=\"%s\"];\n", k, graph->nodes[k].name.c_str());
    if (k) fprintf(file, "  node%zu -> node%zu;\n", k - 1, k);
  }
  fprintf(file, "}\n");
  fclose(file);
  return hipSuccess;
}

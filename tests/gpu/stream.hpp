// A queue of work that a thread of its own carries out in order: a GPU's stream.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace railshmem::standin {

class Stream {
 public:
  explicit Stream(int device);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  // What is enqueued is still carried out, and nobody waits for it.
  ~Stream();
  // Carries out what is enqueued, and ends its thread.
  void finish();
  // Ends its thread where it has nothing to do, until there is more.
  void rest();

  int device() const { return device_; }
  void enqueue(std::function<void()> work);
  void synchronize();
  bool idle();

  // A point in the queue: the work enqueued so far.
  class Point {
   public:
    void wait() const;
    bool reached() const;

   private:
    friend class Stream;
    struct State;
    std::shared_ptr<State> state_;
    uint64_t count_ = 0;
  };
  Point now();

 private:
  void end_thread();

  const int device_;
  const std::shared_ptr<Point::State> state_;
  std::mutex thread_mutex_;
  std::thread thread_;  // from the first work on
};

struct Stream::Point::State {
  void run();
  void close();

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  uint64_t enqueued = 0;
  uint64_t ended = 0;
  bool closed = false;
};

}  // namespace railshmem::standin

#include "tests/gpu/stream.hpp"

#include <pthread.h>
#include <signal.h>

#include <utility>

#include "tests/gpu/device_rights.hpp"

namespace railshmem::standin {

void Stream::Point::State::run() {
  pthread_setname_np(pthread_self(), "standin-stream");
  become_gpu();
  std::unique_lock<std::mutex> lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return !queue.empty() || closed; });
    if (queue.empty()) return;
    {
      const std::function<void()> work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();
    }
    lock.lock();
    ++ended;
    changed.notify_all();
  }
}

Stream::Stream(int device) : device_(device), state_(std::make_shared<Point::State>()) {}

Stream::~Stream() {
  rest();
  if (!thread_.joinable()) return;
  // A kernel may wait for what the caller does next. The library is never unloaded under it.
  state_->close();
  thread_.detach();
}

void Stream::finish() {
  const std::lock_guard<std::mutex> held(thread_mutex_);
  end_thread();
}

void Stream::rest() {
  const std::lock_guard<std::mutex> held(thread_mutex_);
  if (idle()) end_thread();
}

void Stream::end_thread() {
  if (!thread_.joinable()) return;
  state_->close();
  thread_.join();
  state_->closed = false;
}

void Stream::Point::State::close() {
  const std::lock_guard<std::mutex> lock(mutex);
  closed = true;
  changed.notify_all();
}

void Stream::enqueue(std::function<void()> work) {
  const std::lock_guard<std::mutex> held(thread_mutex_);
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->queue.push_back(std::move(work));
    ++state_->enqueued;
    state_->changed.notify_all();
  }
  if (thread_.joinable()) return;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);  // signals are for the program's threads
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([state = state_] { state->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Stream::synchronize() {
  now().wait();
}

bool Stream::idle() {
  return now().reached();
}

Stream::Point Stream::now() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  Point point;
  point.state_ = state_;
  point.count_ = state_->enqueued;
  return point;
}

void Stream::Point::wait() const {
  if (!state_) return;
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->ended >= count_; });
}

bool Stream::Point::reached() const {
  if (!state_) return true;
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->ended >= count_;
}

}  // namespace railshmem::standin

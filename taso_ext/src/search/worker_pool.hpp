// Threads that run jobs in the order of submission. A pool of one thread starts none: the caller does the work.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace rlflow {

// A result that is computed once, by any thread. A thread that asks for it before another one has begun computes it
// itself.
template <typename T>
class Job {
 public:
  explicit Job(std::function<T()> work) : work_(std::move(work)) {}

  void run() {
    {
      const std::lock_guard guard(mutex_);
      if (claimed_) return;
      claimed_ = true;
    }
    try {
      result_ = work_();
    } catch (...) {
      error_ = std::current_exception();
    }
    work_ = nullptr;
    {
      const std::lock_guard guard(mutex_);
      done_ = true;
    }
    ready_.notify_all();
  }

  // Leaves the job undone if no thread has begun it.
  void cancel() {
    const std::lock_guard guard(mutex_);
    claimed_ = true;
  }

  [[nodiscard]] T& get() {
    run();
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return done_; });
    if (error_) std::rethrow_exception(error_);
    return result_;
  }

 private:
  std::function<T()> work_;
  std::mutex mutex_;
  std::condition_variable ready_;
  bool claimed_ = false, done_ = false;
  T result_{};
  std::exception_ptr error_;
};

class WorkerPool {
 public:
  // `threads` includes the caller.
  explicit WorkerPool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool() {
    {
      const std::lock_guard guard(mutex_);
      closing_ = true;
    }
    waiting_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  // Returns how many jobs may run at a time, the caller's among them.
  [[nodiscard]] std::size_t width() const { return workers_.size() + 1; }

  template <typename T>
  void submit(std::shared_ptr<Job<T>> job) {
    if (workers_.empty()) return;    // the caller of get() runs it
    {
      const std::lock_guard guard(mutex_);
      queue_.emplace_back([job = std::move(job)] { job->run(); });
    }
    waiting_.notify_one();
  }

 private:
  void work() {
    while (true) {
      std::function<void()> job;
      {
        std::unique_lock lock(mutex_);
        waiting_.wait(lock, [&] { return closing_ || !queue_.empty(); });
        if (closing_) return;
        job = std::move(queue_.front());
        queue_.pop_front();
      }
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable waiting_;
  std::deque<std::function<void()>> queue_;
  bool closing_ = false;
  std::vector<std::thread> workers_;    // last, because they use the members above
};

}  // namespace rlflow

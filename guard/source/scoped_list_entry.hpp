#pragma once

// ScopedListEntry: an element of a list for as long as it lives.
//
// Thread safety: the list is changed under its mutex, which must be held by every reader.

#include <list>
#include <mutex>

namespace fenceguard {

template <class T>
class ScopedListEntry {
 public:
  // REQUIRES: all three outlive it; the caller does not hold the mutex, neither here nor at its end.
  ScopedListEntry(std::mutex& mutex, std::list<T*>& list, T& element) : mutex_{mutex}, list_{list} {
    const std::scoped_lock lock{mutex_};
    place_ = list_.insert(list_.end(), &element);
  }
  ~ScopedListEntry() {
    const std::scoped_lock lock{mutex_};
    list_.erase(place_);
  }
  ScopedListEntry(const ScopedListEntry&) = delete;
  ScopedListEntry& operator=(const ScopedListEntry&) = delete;

 private:
  std::mutex& mutex_;
  std::list<T*>& list_;
  typename std::list<T*>::iterator place_;
};

}  // namespace fenceguard

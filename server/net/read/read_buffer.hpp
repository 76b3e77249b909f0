#pragma once

// ReadBuffer: the bytes of one connection that were received and not yet used. Small while there is little in
// it, because most of 10,000 connections are idle; grows while a header block needs it.
//
// Not thread-safe.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

namespace fenceguard::net {

class ReadBuffer {
 public:
  static constexpr std::size_t small = 2048;

  [[nodiscard]] std::string_view view() const noexcept { return {data_.get() + begin_, end_ - begin_}; }
  [[nodiscard]] std::size_t size() const noexcept { return end_ - begin_; }
  [[nodiscard]] bool empty() const noexcept { return begin_ == end_; }

  // Makes room behind the unused bytes: moves them to the front, and doubles the memory if they fill it. The
  // memory is bytes_min or more then.
  void reserve(std::size_t bytes_min = small) {
    if (begin_ == end_) begin_ = end_ = 0;
    if (end_ < capacity_ && capacity_ >= bytes_min) return;
    const std::size_t used = size();
    if (capacity_ < bytes_min || begin_ == 0) {
      reallocate(std::max(bytes_min, capacity_ * 2));
    } else {
      std::memmove(data_.get(), data_.get() + begin_, used);
    }
    begin_ = 0;
    end_ = used;
  }

  // Where the next bytes go. REQUIRES: reserve() was called.
  [[nodiscard]] char* room() noexcept { return data_.get() + end_; }
  [[nodiscard]] std::size_t room_bytes() const noexcept { return capacity_ - end_; }
  void commit(std::size_t bytes) noexcept { end_ += bytes; }
  void consume(std::size_t bytes) noexcept { begin_ += bytes; }

  // Gives back the memory that a large header block took, if nothing is in it now.
  void shrink() {
    if (capacity_ > small) release();
  }

  // Gives back all memory, if nothing is in it now.
  void release() {
    if (begin_ != end_) return;
    data_.reset();
    begin_ = end_ = capacity_ = 0;
  }

 private:
  void reallocate(std::size_t capacity) {
    std::unique_ptr<char[]> larger{new char[capacity]};
    if (!empty()) std::memcpy(larger.get(), data_.get() + begin_, size());
    data_ = std::move(larger);
    capacity_ = capacity;
  }

  std::unique_ptr<char[]> data_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace fenceguard::net

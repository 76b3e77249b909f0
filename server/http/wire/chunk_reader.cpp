#include "server/http/wire/chunk_reader.hpp"

#include <algorithm>
#include <charconv>

namespace fenceguard::http {
namespace {

bool holds_control(std::string_view line) {
  return std::any_of(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == '\x7f';
  });
}

}  // namespace

std::size_t ChunkReader::read(std::string_view data, std::string& body, std::size_t bytes_max) {
  std::size_t used = 0;
  std::size_t room = bytes_max;
  while (!refusal_ && !is_complete()) {
    const auto taken = step(data.substr(used), body, room);
    if (taken == 0) break;
    used += taken;
  }
  return used;
}

std::size_t ChunkReader::step(std::string_view data, std::string& body, std::size_t& room) {
  if (state_ == State::content) return read_content(data, body, room);
  const auto feed = data.find('\n');
  if (feed == std::string_view::npos) {
    return data.size() > line_bytes_max ? refuse(400, "a line of the chunked body is too long") : 0;
  }
  if (feed > line_bytes_max) return refuse(400, "a line of the chunked body is too long");
  const auto line = data.substr(0, feed);
  if (line.empty() || line.back() != '\r' || holds_control(line.substr(0, feed - 1)))
    return refuse(400, "a line of the chunked body is malformed");
  take_line(line.substr(0, feed - 1));
  return feed + 1;
}

std::size_t ChunkReader::read_content(std::string_view data, std::string& body, std::size_t& room) {
  const auto there = std::min(data.size(), room);
  const auto taken = static_cast<std::size_t>(std::min<std::uint64_t>(chunk_bytes_left_, there));
  body.append(data.substr(0, taken));
  room -= taken;
  chunk_bytes_left_ -= taken;
  if (chunk_bytes_left_ == 0) state_ = State::content_end;
  return taken;
}

void ChunkReader::take_line(std::string_view line) {
  if (state_ == State::size) return take_size(line);
  if (state_ == State::trailers) return take_trailer(line);
  if (!line.empty()) refuse(400, "a chunk is longer than its size says");
  state_ = State::size;
}

void ChunkReader::take_size(std::string_view line) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), chunk_bytes_left_, 16);
  if (error == std::errc::result_out_of_range) {
    refuse(413, "the body is larger than this server takes");
  } else if (error != std::errc{} || (end != line.data() + line.size() && *end != ';')) {
    refuse(400, "a chunk's size is malformed");
  } else if (chunk_bytes_left_ > body_bytes_left_) {
    refuse(413, "the body is larger than this server takes");
  } else {
    body_bytes_left_ -= static_cast<std::size_t>(chunk_bytes_left_);
    state_ = chunk_bytes_left_ == 0 ? State::trailers : State::content;
  }
}

void ChunkReader::take_trailer(std::string_view line) {
  trailer_bytes_ += line.size();
  const auto colon = line.find(':');
  if (line.empty()) {
    state_ = State::complete;
  } else if (trailer_bytes_ > line_bytes_max) {
    refuse(400, "the trailers of the body are too long");
  } else if (colon == 0 || colon == std::string_view::npos || line.find_first_of(" \t") < colon) {
    refuse(400, "a trailer of the body is malformed");
  }
}

std::size_t ChunkReader::refuse(unsigned status, std::string_view why) {
  refusal_ = Rejection{status, why};
  return 0;
}

}  // namespace fenceguard::http

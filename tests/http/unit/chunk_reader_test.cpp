#include "server/http/wire/chunk_reader.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace fenceguard::http {
namespace {

// Reads data as it would come in pieces of step bytes.
struct Reading {
  std::string body;
  std::size_t used = 0;
  bool is_complete = false;
  unsigned status = 0;

  explicit Reading(std::string_view data, std::size_t step = 1, std::size_t body_bytes_max = 100) {
    ChunkReader reader{body_bytes_max};
    for (std::size_t end = step;; end += step) {
      end = std::min(end, data.size());
      used += reader.read(data.substr(used, end - used), body);
      if (end == data.size() || reader.is_complete() || reader.refusal()) break;
    }
    is_complete = reader.is_complete();
    if (reader.refusal()) status = reader.refusal()->status;
  }
};

TEST(ChunkReader, UndoesChunksHoweverTheyArrive) {
  const std::string data = "5\r\nhello\r\n7;name=value\r\n, world\r\n0\r\nTrailer: x\r\n\r\n";
  for (std::size_t step = 1; step <= data.size(); ++step) {
    const Reading reading{data + "GET", step};
    EXPECT_TRUE(reading.is_complete) << step;
    EXPECT_EQ(reading.body, "hello, world");
    EXPECT_EQ(reading.used, data.size());
  }
}

TEST(ChunkReader, EmptyBodyIsOneLastChunk) {
  for (std::size_t step = 1; step < 6; ++step) EXPECT_TRUE(Reading("0\r\n\r\n", step).is_complete);
  EXPECT_TRUE(Reading("000\r\n\r\n").is_complete);
}

TEST(ChunkReader, ReadsHexadecimalSizes) {
  EXPECT_EQ(Reading("A\r\n0123456789\r\n0\r\n\r\n").body, "0123456789");
  EXPECT_EQ(Reading("a\r\n0123456789\r\n0\r\n\r\n").body, "0123456789");
}

TEST(ChunkReader, RefusesMalformedChunks) {
  for (const char* data :
       {"x\r\n", "\r\n", " 5\r\nhello\r\n", "5 \r\nhello\r\n", "+5\r\n", "-1\r\n", "0x5\r\n", "5\nhello",
        "5\r\nhelloX\r\n", "5\r\nhello\n", "5\r\nhello\r\n\r\n", "5\rx\r\n", "0\r\nbad trailer\r\n",
        "0\r\n: x\r\n", "0\r\n a: x\r\n", "0\r\nA : x\r\n", "0\r\n\n"}) {
    EXPECT_EQ(Reading(data, 1).status, 400U) << data;
    EXPECT_EQ(Reading(data, 1000).status, 400U) << data;
  }
}

TEST(ChunkReader, RefusesMoreThanTheLimitBeforeReadingIt) {
  EXPECT_EQ(Reading("65\r\n").status, 413U);
  EXPECT_EQ(Reading("64\r\n").status, 0U);
  EXPECT_EQ(Reading("5\r\nhello\r\n60\r\n").status, 413U);
  EXPECT_EQ(Reading("ffffffffffffffff\r\n").status, 413U);
  EXPECT_EQ(Reading("10000000000000000\r\n").status, 413U);
}

TEST(ChunkReader, RefusesEndlessLinesAndTrailers) {
  EXPECT_EQ(Reading("5;" + std::string(5000, 'x'), 100).status, 400U);
  EXPECT_EQ(Reading("5;" + std::string(5000, 'x') + "\r\n", 10000).status, 400U);
  std::string trailers = "0\r\n";
  for (int i = 0; i < 1000; ++i) trailers += "Name: value\r\n";
  EXPECT_EQ(Reading(trailers, 100).status, 400U);
}

}  // namespace
}  // namespace fenceguard::http

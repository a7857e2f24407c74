// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/hostile_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <csignal>

namespace ddprun {
namespace {

template <typename T, T* (*kRead)(BIO*, T**, pem_password_cb*, void*)>
T* ReadPem(const std::string& pem) {
  BIO* const bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  T* const object = kRead(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  return object;
}

}  // namespace

HostilePeer::HostilePeer(int port, int timeout_seconds)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  const timeval timeout{.tv_sec = timeout_seconds, .tv_usec = 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd_.Reset();
}

bool HostilePeer::StartTls(const Tls& tls) {
  context_.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_max_proto_version(context_.get(), tls.version_max);
  SSL_CTX_set_security_level(context_.get(), 0);
  SSL_CTX_set_mode(context_.get(), SSL_MODE_AUTO_RETRY);
  if (tls.credentials.has_value()) {
    X509* const certificate = ReadPem<X509, PEM_read_bio_X509>(tls.credentials->chain_pem);
    EVP_PKEY* const key = ReadPem<EVP_PKEY, PEM_read_bio_PrivateKey>(tls.credentials->key_pem);
    SSL_CTX_use_certificate(context_.get(), certificate);
    SSL_CTX_use_PrivateKey(context_.get(), key);
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  if (tls.alpn)
    SSL_CTX_set_alpn_protos(context_.get(), reinterpret_cast<const unsigned char*>("\x02h2"), 3);
  ssl_.reset(SSL_new(context_.get()));
  SSL_set_fd(ssl_.get(), fd_.get());
  return SSL_connect(ssl_.get()) == 1;
}

bool HostilePeer::Send(const std::string& bytes) {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const std::size_t left = bytes.size() - sent;
    const ssize_t count = ssl_ != nullptr
                              ? SSL_write(ssl_.get(), bytes.data() + sent, static_cast<int>(left))
                              : send(fd_.get(), bytes.data() + sent, left, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<std::size_t>(count);
  }
  return true;
}

void HostilePeer::EndSending() { shutdown(fd_.get(), SHUT_WR); }

HostilePeer::Received HostilePeer::Receive(std::chrono::milliseconds patience,
                                           const std::string& until) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  Received received;
  char buffer[16384];
  while (until.empty() || received.bytes.find(until) == std::string::npos) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd ready{fd_.get(), POLLIN, 0};
    const bool buffered = ssl_ != nullptr && SSL_pending(ssl_.get()) > 0;
    if (!buffered && (left.count() <= 0 || poll(&ready, 1, static_cast<int>(left.count())) <= 0))
      return received;
    const ssize_t count = ssl_ != nullptr ? SSL_read(ssl_.get(), buffer, sizeof buffer)
                                          : recv(fd_.get(), buffer, sizeof buffer, 0);
    if (count <= 0) {
      received.closed = true;
      return received;
    }
    received.bytes.append(buffer, static_cast<std::size_t>(count));
  }
  return received;
}

std::string BigEndian(std::uint64_t number, int width) {
  std::string bytes;
  for (int shift = 8 * (width - 1); shift >= 0; shift -= 8)
    bytes.push_back(static_cast<char>(number >> shift));
  return bytes;
}

std::string Http2Frame(int type, int flags, std::uint32_t stream, const std::string& payload) {
  return BigEndian(payload.size(), 3) + static_cast<char>(type) + static_cast<char>(flags) +
         BigEndian(stream, 4) + payload;
}

std::string Header(const std::string& name, const std::string& value) {
  const auto text = [](const std::string& content) {
    if (content.size() < 127) return static_cast<char>(content.size()) + content;
    std::string size = "\x7f";
    std::size_t rest = content.size() - 127;
    for (; rest >= 128; rest /= 128) size.push_back(static_cast<char>(0x80 | (rest % 128)));
    return size + static_cast<char>(rest) + content;
  };
  return std::string(1, '\0') + text(name) + text(value);
}

std::string CallHeaders(const std::string& path) {
  return Header(":method", "POST") + Header(":scheme", "https") + Header(":path", path) +
         Header(":authority", "x") + Header("te", "trailers") +
         Header("content-type", "application/grpc");
}

std::string BeginCall(const std::string& path) {
  return kHttp2Preface + Http2Frame(4, 0, 0, "") + Http2Frame(1, 4, 1, CallHeaders(path));
}

std::string GrpcMessage(const std::string& bytes) {
  return Http2Frame(0, 0, 1, std::string(1, '\0') + BigEndian(bytes.size(), 4) + bytes);
}

}  // namespace ddprun

# frozen_string_literal: true

require_relative "../ports"
require_relative "../restarting"

require "openssl"

# The connections and sessions that TLS clients keep across a restart.
class TlsRestartTest < Minitest::Test
  include Restarting

  def write_pair
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = OpenSSL::X509::Certificate.new
    certificate.serial = 1
    certificate.version = 2
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=localhost")
    certificate.public_key = key
    certificate.not_before = Time.now - 60
    certificate.not_after = Time.now + 3600
    certificate.sign(key, "SHA256")
    pair = [write("cert.pem", certificate.to_pem), write("key.pem", key.to_pem)]
    File.chmod(0o600, pair.last)
    pair
  end

  # Asks once, with a session of before or without. A session for the next time, and whether it was
  # taken up.
  def ask(port, session = nil)
    sessions = []
    context = OpenSSL::SSL::SSLContext.new
    context.session_cache_mode = OpenSSL::SSL::SSLContext::SESSION_CACHE_CLIENT
    context.session_new_cb = ->((_, made)) { sessions << made }
    io = OpenSSL::SSL::SSLSocket.new(TCPSocket.new("127.0.0.1", port), context)
    io.session = session if session
    io.connect
    assert_equal 200, Client.new(io).request.status
    [sessions.last, io.session_reused?]
  ensure
    io&.close
  end

  def test_a_session_is_taken_up_after_a_hot_restart
    cert, key = write_pair
    port = Ports.free_port
    write("config.ru", VERSIONED)
    write("version", "v1")
    write("config/puma.rb", "bind 'ssl://127.0.0.1:#{port}?cert=#{cert}&key=#{key}'\n" \
                            "bind 'tcp://127.0.0.1:0'\n")
    pid = start("-w", "2", port: [])
    session, = ask(port)
    session, is_reused = ask(port, session)
    assert is_reused, "it is taken up without a restart"
    2.times do
      logged("hot restart: done") { Process.kill("USR2", pid) }
      session, is_reused = ask(port, session)
      assert is_reused
    end
    assert_predicate stop(pid), :success?
  end
end

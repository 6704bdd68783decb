# frozen_string_literal: true

require "fileutils"
require "openssl"
require "tmpdir"

require "thruway/configuration/configuration_file"

require_relative "../serving"
require_relative "../websocketing"

# Applications behind `ssl://`, with Ruby's own openssl as the client.
class TlsTest < Minitest::Test
  include Serving

  def setup
    @folder = Dir.mktmpdir
    write_pair("localhost", "localhost")
    write_pair("other", "b.example")
  end

  def teardown
    super
    FileUtils.rm_rf(@folder)
  end

  def path(name)
    File.join(@folder, name)
  end

  def parameters
    "cert=#{path("localhost.cert.pem")}&key=#{path("localhost.key.pem")}"
  end

  def serve_tls(more = "", **options, &app)
    serve(binds: ["ssl://127.0.0.1:0?#{parameters}#{more}"], **options, &app)
  end

  def connect(certificate: nil, key: nil)
    context = OpenSSL::SSL::SSLContext.new
    context.ca_file = path("localhost.cert.pem")
    context.verify_mode = OpenSSL::SSL::VERIFY_PEER
    context.add_certificate(certificate, key) if certificate
    socket = OpenSSL::SSL::SSLSocket.new(super().io, context)
    socket.hostname = "localhost"
    Timeout.timeout(PATIENCE_SECONDS) { socket.connect }
    socket.sync_close = true
    Client.new(socket)
  end

  # Returns a certificate of `key` for an hour, which `issuer` must sign.
  def certificate_of(key, name, issuer)
    certificate = OpenSSL::X509::Certificate.new
    certificate.version = 2
    certificate.serial = 7
    certificate.subject = OpenSSL::X509::Name.parse(name)
    certificate.issuer = issuer || certificate.subject
    certificate.public_key = key
    certificate.not_before = Time.now - 60
    certificate.not_after = Time.now + 3600
    certificate
  end

  def extend_by(certificate, name, value, is_critical)
    extensions = OpenSSL::X509::ExtensionFactory.new
    certificate.add_extension(extensions.create_extension(name, value, is_critical))
  end

  # Writes a self-signed certificate and its key.
  def write_pair(name, host)
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = certificate_of(key, "/CN=#{host}", nil)
    extend_by(certificate, "subjectAltName", "DNS:#{host}", false)
    File.write(path("#{name}.cert.pem"), certificate.sign(key, "SHA256").to_pem)
    File.write(path("#{name}.key.pem"), key.to_pem, perm: 0o600)
  end

  # Returns a certificate of a client, signed by the authority, and its key.
  def client_pair
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = certificate_of(key, "/CN=ann", authority.subject)
    [certificate.sign(authority_key, "SHA256"), key]
  end

  def authority
    @authority ||= certificate_of(authority_key, "/CN=authority", nil).tap do |certificate|
      extend_by(certificate, "basicConstraints", "CA:TRUE", true)
      certificate.sign(authority_key, "SHA256")
    end
  end

  def authority_key
    @authority_key ||= OpenSSL::PKey::EC.generate("prime256v1")
  end

  def test_the_environment_says_that_the_client_speaks_tls
    names = %w[rack.url_scheme HTTPS SERVER_PORT puma.peercert]
    serve_tls { |env| [200, {}, [names.map { |name| env[name].inspect }.join(" ")]] }
    assert_match(/\Ahttps:/, @address)
    client = connect
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert_equal '"https" "on" "443" nil', client.response.body
    assert_equal '"https" "on" "81" nil', client.request.body
    serve { |env| [200, {}, [env["HTTPS"].inspect]] }
    plain = TCPSocket.new("127.0.0.1", @address[/\d+\z/].to_i)
    assert_equal "nil", Client.new(plain).request.body
  end

  def test_a_client_shows_its_certificate_where_it_is_asked_to
    File.write(path("ca.pem"), authority.to_pem)
    %w[peer force_peer].each do |mode|
      serve_tls("&ca=#{path("ca.pem")}&verify_mode=#{mode}") do |env|
        [200, {}, [env["puma.peercert"]&.subject.to_s]]
      end
      certificate, key = client_pair
      shown = connect(certificate: certificate, key: key)
      2.times { assert_equal "/CN=ann", shown.request.body }
      if mode == "peer"
        assert_equal "", connect.request.body
      else
        assert_raises(OpenSSL::SSL::SSLError, Errno::ECONNRESET) { connect.request }
      end
    end
  end

  def test_bodies_go_both_ways
    file = path("file")
    File.binwrite(file, Random.bytes(3_000_000))
    serve_tls do |env|
      case env["PATH_INFO"]
      when "/echo" then [200, {}, [env["rack.input"].read]]
      when "/file" then [200, {}, File.open(file)]
      else [200, {}, ->(stream) { 3.times { |at| stream.write("part #{at} ") } && stream.close }]
      end
    end
    client = connect
    body = Random.bytes(2_000_000)
    assert_equal body, client.request("/echo", method: "POST", body: body).body.b
    assert_equal File.binread(file), client.request("/file").body.b
    assert_equal "part 0 part 1 part 2 ", client.request("/stream").body
    2.times { client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n") }
    2.times { assert_equal "part 0 part 1 part 2 ", client.response.body }
  end

  def test_a_response_that_cannot_be_finished_is_cut_off_and_not_ended
    serve_tls do
      [200, { "content-length" => "10" }, ->(stream) { stream.write("half") && stream.close }]
    end
    stderr_of do
      client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      client.read_head
      assert_raises(OpenSSL::SSL::SSLError, Errno::ECONNRESET) { loop { client.io.readpartial(9) } }
      # The message appears after the connection has been closed.
      eventually { $stderr.string.include?("6") }
    end
  end

  def test_an_application_takes_the_connection
    server = serve_tls do |env|
      io = env["rack.hijack"].call
      Thread.new do
        io.write("HTTP/1.1 101 Switching Protocols\r\n\r\n")
        io.write(io.readpartial(100_000).upcase) until io.eof?
        io.write("bye")
        io.close
      end
      [-1, {}, []]
    end
    more_sockets
    clients = Array.new(3) { connect }
    clients.each { |client| client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nmore") }
    clients.each do |client|
      assert_equal 101, client.read_head.first
      assert_equal "MORE", client.io.read(4)
      sent = "x" * 1_000_000
      writer = Thread.new { client.send(sent) }
      assert_equal sent.upcase, client.io.read(sent.bytesize)
      writer.join
    end
    assert_predicate server.engine.connections, :zero?
    clients.each { |client| client.io.close }
    eventually { more_sockets <= 0 }
  end

  def test_a_connection_that_the_application_closes_has_an_end
    serve_tls do |env|
      io = env["rack.hijack"].call
      io.write("mine")
      io.close
      [-1, {}, []]
    end
    more_sockets
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert_equal "mine", client.io.read
    # The client's own socket is still open.
    eventually { more_sockets <= 1 }
  end

  # Returns the number of sockets in excess of the number at the first call.
  def more_sockets
    sockets = Dir["/proc/self/fd/*"].count { |link| File.socket?(link) }
    sockets - (@sockets ||= sockets)
  end

  def test_certificates_are_read_anew_when_they_are_told_to
    server = serve_tls { [200, {}, ["ok"]] }
    assert_equal "ok", connect.request.body
    File.write(path("localhost.key.pem"), "no key")
    said = stderr_of { server.reload_certificates }
    assert_includes said, "localhost.key.pem: it holds no private key in PEM"
    assert_equal "ok", connect.request.body
    FileUtils.cp(path("other.key.pem"), path("localhost.key.pem"))
    FileUtils.cp(path("other.cert.pem"), path("localhost.cert.pem"))
    assert_empty(stderr_of { server.reload_certificates })
  end

  def test_puma_s_word_is_an_address
    configuration = Thruway::Configuration.new
    file = path("puma.rb")
    File.write(file, "ssl_bind '::1', 443, cert: %w[a b], key: ['c d', 'e&f'], verify_mode: 'none'")
    Thruway::ConfigurationFile.new(configuration).read(file)
    assert_equal ["ssl://::1:443?cert=a&key=c%20d&cert=b&key=e%26f&verify_mode=none"],
                 configuration.addresses
  end

  def test_a_websocket_is_kept_beneath_tls
    echo = Object.new
    def echo.on_message(client, data) = client.write(data * 2)
    serve_tls { |env| env["rack.upgrade"] = echo and [200, {}, []] }
    socket = WebSocketing.new(connect.io)
    assert_equal [101, "ping" * 2], [socket.status, socket.send("ping").message]
    long = "x" * 300_000
    assert_equal long * 2, socket.send(long).message
    assert_equal 1000, socket.close.close_code
    assert_nil socket.frame
  end

  # The interrupt may reach a thread in a handshake, at the edge of a turn, or during its start.
  def test_threads_that_are_ended_while_clients_shake_hands_are_all_replaced
    workers = Queue.new
    stderr_of do
      serve_tls(threads: 3) do
        workers << Thread.current
        [200, {}, ["ok"]]
      end
      clients = Array.new(4) { Thread.new { Array.new(20) { connect.request.status } } }
      while clients.any?(&:alive?)
        workers.pop(true).raise("late") unless workers.empty?
        sleep 0.001
      end
      assert_empty clients.flat_map(&:value).uniq - [200, 500]
      assert_equal "ok", connect.request.body
    end
  end
end

# frozen_string_literal: true

require_relative "../commands"
require_relative "../ports"

require "thruway/configuration/configuration_file"

# The address of a client behind proxies: PROXY heads, `X-Forwarded-For` and `Forwarded`.
class ProxiesTest < Minitest::Test
  include Commands

  SHOW = lambda do |env|
    [200, {}, ["#{env["REMOTE_ADDR"]} #{env["rack.url_scheme"]} #{env["rack.input"].read}"]]
  end
  V2 = "\r\n\r\n\0\r\nQUIT\n".b

  def v2(address, command: 0x21)
    octets = address.split(".").map(&:to_i) + [10, 0, 0, 1, 0x1f, 0x90, 1, 187]
    V2 + [command, 0x11, octets.size, *octets].pack("CCnC*")
  end

  # Serves with the words of a configuration file.
  def serve_with(words, **options)
    configuration = Thruway::Configuration.new
    path = write("config.rb", words)
    Thruway::ConfigurationFile.new(configuration).read(path)
    serve(SHOW, **configuration.options, **options)
  end

  def test_a_line_of_version_1_names_the_client_once_a_connection
    serve_with("set_remote_address proxy_protocol: :v1")
    client = connect.send("PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n")
    2.times { assert_equal "192.0.2.7 http ", client.request.body }
    six = connect.send("PROXY TCP6 2001:db8::7 ::1 4711 443\r\n")
    assert_equal "2001:db8::7 http ", six.request("/", method: "POST", body: "").body
    unknown = connect.send("PROXY UNKNOWN\r\n")
    assert_equal "127.0.0.1 http abc", unknown.request("/", method: "POST", body: "abc").body
  end

  def test_a_head_may_come_byte_by_byte
    serve_with("set_remote_address proxy_protocol: :v1")
    client = connect
    head = "PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n"
    "#{head}GET / HTTP/1.1\r\nHost: a\r\n\r\n".each_char { |char| client.send(char) }
    assert_equal "192.0.2.7 http ", client.response.body
  end

  def test_version_2_names_the_client
    serve_with("set_remote_address proxy_protocol: :v2")
    assert_equal "192.0.2.7 http ", connect.send(v2("192.0.2.7")).request.body
    itself = connect.send(v2("192.0.2.7", command: 0x20))
    assert_equal "127.0.0.1 http ", itself.request.body, "the proxy speaks for itself"
  end

  def test_a_trusted_connection_without_a_head_is_refused
    serve_with("set_remote_address proxy_protocol: :v1")
    client = connect
    assert_equal 400, client.request.status
    assert_predicate client, :closed?
    binary = connect.send(v2("192.0.2.7"))
    assert_equal 400, binary.request.status
    binary.io.close
  end

  def test_a_second_head_is_no_request
    serve_with("set_remote_address proxy_protocol: :v1")
    client = connect.send("PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n")
    assert_equal 200, client.request.status
    assert_equal 400, client.send("PROXY TCP4 6.6.6.6 10.0.0.1 1 1\r\n").response.status
  end

  def test_another_address_cannot_name_its_client
    serve_with("set_remote_address proxy_protocol: :v1\ntrusted_proxies '192.0.2.0/24'")
    assert_equal "127.0.0.1 http ", get.body
    spoof = connect.send("PROXY TCP4 6.6.6.6 10.0.0.1 1 1\r\n")
    assert_equal 400, spoof.response.status
    serve_with("set_remote_address :x_forwarded_for\ntrusted_proxies '192.0.2.0/24'")
    said = get("/", "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n")
    assert_equal "127.0.0.1 http ", said.body
  end

  def test_the_last_address_that_is_no_proxy_is_the_client
    serve_with("set_remote_address :x_forwarded_for")
    fields = "X-Forwarded-For: 6.6.6.6, 192.0.2.7, 10.0.0.1\r\nX-Forwarded-Proto: https\r\n"
    assert_equal "192.0.2.7 https ", get("/", fields).body
    assert_equal "127.0.0.1 http ", get("/", "Forwarded: for=6.6.6.6;proto=https\r\n").body
    serve_with("set_remote_address :forwarded")
    assert_equal "192.0.2.7 https ", get("/", "Forwarded: for=192.0.2.7;proto=https\r\n").body
    assert_equal "127.0.0.1 http ", get("/", "X-Forwarded-For: 6.6.6.6\r\n").body
  end

  def test_turns_go_by_the_client_behind_the_proxy
    write("config.ru", "run ->(env) { [200, {}, [env['REMOTE_ADDR']]] }")
    write("config/puma.rb", <<~RUBY)
      set_remote_address :x_forwarded_for
      fair_by :address
      metrics "unix://#{@folder}/metrics.sock"
    RUBY
    start("-w", "2")
    { "192.0.2.7" => 3, "192.0.2.8" => 1 }.each do |address, count|
      count.times { assert_equal address, get("/", "X-Forwarded-For: #{address}\r\n").body }
    end
    stats = Client.new(UNIXSocket.new(File.join(@folder, "metrics.sock"))).request("/stats").body
    assert_includes stats, '"name":"192.0.2.7","requests":3'
    assert_includes stats, '"name":"192.0.2.8","requests":1'
  end

  def test_what_cannot_be_meant_is_refused
    ["set_remote_address proxy_protocol: :v3", "set_remote_address :other"].each do |words|
      error = assert_raises(Thruway::Failure) { serve_with(words) }
      assert_includes error.message, "set_remote_address: the source must be"
    end
    error = assert_raises(Thruway::Failure) { serve_with("trusted_proxies 'somewhere'") }
    assert_includes error.message, '"somewhere" is neither an address nor a network'
  end

  HAPROXY = <<~TEXT
    defaults
      mode %<mode>s
      timeout connect 20s
      timeout client 20s
      timeout server 20s
    frontend front
      bind %<front>s
      default_backend back
    backend back
      %<check>s
      server one %<back>s %<option>s check inter 100ms
  TEXT

  # The response that a client at 127.0.0.9 gets through a HAProxy in front of the last server.
  def through_haproxy(option, mode: "http", check: "option httpchk GET /up", &secure)
    port = Ports.free_port
    text = format(HAPROXY, front: "127.0.0.1:#{port}", option: option, mode: mode, check: check,
                           back: @address[%r{[^/]+\z}])
    @pids << spawn("haproxy", "-db", "-f", write("#{option}.cfg", text),
                   out: File::NULL, err: File::NULL)
    response = nil
    eventually do
      response = ask_from("127.0.0.9", port, &secure)
      response.status == 200
    rescue Errno::ECONNREFUSED, Errno::ECONNRESET, EOFError
      false
    end
    response.body
  end

  def ask_from(address, port)
    socket = TCPSocket.new("127.0.0.1", port, address)
    socket = yield socket if block_given?
    Client.new(socket).request
  ensure
    socket&.close
  end

  # The proxy's health check also has a head.
  def test_haproxy_names_its_client_in_both_versions
    skip "haproxy is not installed" unless system("haproxy", "-v", out: File::NULL)
    { "send-proxy" => ":v1", "send-proxy-v2" => ":v2" }.each do |option, version|
      serve_with("set_remote_address proxy_protocol: #{version}\nhealth_check '/up'")
      assert_equal "127.0.0.9 http ", through_haproxy(option), option
    end
  end

  # Writes a certificate for this test, and returns the directives that bind an address with it.
  def bind_with_tls
    certificate, key = %w[cert.pem key.pem].map { |name| File.join(@folder, name) }
    assert system("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                  "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost",
                  "-keyout", key, "-out", certificate, err: File::NULL)
    ["ssl://127.0.0.1:0?cert=#{certificate}&key=#{key}"]
  end

  def shake_hands(socket)
    OpenSSL::SSL::SSLSocket.new(socket).tap(&:connect)
  rescue OpenSSL::SSL::SSLError
    # HAProxy has not found its server yet.
    raise EOFError
  end

  # In TCP mode, HAProxy forwards the handshake after its own head.
  def test_haproxy_names_its_client_before_a_handshake
    skip "haproxy is not installed" unless system("haproxy", "-v", out: File::NULL)
    require "openssl"
    binds = bind_with_tls
    { "send-proxy" => ":v1", "send-proxy-v2" => ":v2" }.each do |option, version|
      serve_with("set_remote_address proxy_protocol: #{version}", binds: binds)
      body = through_haproxy(option, mode: "tcp", check: "") { |socket| shake_hands(socket) }
      assert_equal "127.0.0.9 https ", body, option
    end
  end

  # OpenTelemetry's context is the application's: nothing is added, and nothing taken away.
  def test_a_trace_context_goes_through
    keys = %w[HTTP_TRACEPARENT HTTP_TRACESTATE HTTP_BAGGAGE]
    serve(->(env) { [200, {}, [env.values_at(*keys).join(" ")]] })
    trace = "00-00000000000000000000000000000010-0000000000000020-01"
    fields = "traceparent: #{trace}\r\ntracestate: a=1\r\ntracestate: b=2\r\nbaggage: k=v\r\n"
    assert_equal "#{trace} a=1, b=2 k=v", get("/", fields).body
  end
end

# frozen_string_literal: true

require "fileutils"
require "open3"
require "openssl"
require "tmpdir"

require_relative "../serving"

# Applications that curl requests by HTTP/2.
class Http2Test < Minitest::Test
  include Serving

  # Curl's output: the body, followed by the version of HTTP and the status.
  def curl(path, *options, how: "--http2-prior-knowledge")
    address = @address.sub(/\Atcp|\Assl/) { |scheme| scheme == "ssl" ? "https" : "http" }
    address = "http://#{address}" unless address.include?("://")
    command = ["curl", "-sSk", "--noproxy", "*", "--max-time", PATIENCE_SECONDS.to_s, how,
               "-w", "|%{http_version} %{http_code}", *options, "#{address}#{path}"]
    got, status = Open3.capture2e(*command)
    assert_predicate status, :success?, got
    got
  end

  def parameters(folder)
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = OpenSSL::X509::Certificate.new
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=localhost")
    certificate.public_key = key
    certificate.version = 2
    certificate.serial = 1
    certificate.not_before = Time.now - 60
    certificate.not_after = Time.now + 3600
    certificate.sign(key, "SHA256")
    File.write(File.join(folder, "cert.pem"), certificate.to_pem)
    File.write(File.join(folder, "key.pem"), key.to_pem, perm: 0o600)
    "cert=#{folder}/cert.pem&key=#{folder}/key.pem"
  end

  ENVIRONMENT = %w[REQUEST_METHOD PATH_INFO QUERY_STRING SERVER_PROTOCOL rack.url_scheme
                   HTTP_HOST HTTP_COOKIE CONTENT_LENGTH HTTP_TRANSFER_ENCODING rack.hijack?].freeze

  def answer_with_environment
    lambda do |env|
      body = env["rack.input"].read
      values = env.values_at(*ENVIRONMENT)
      [200, { "content-type" => "text/plain" }, [(values + [body.bytesize]).join(",")]]
    end
  end

  def test_a_server_that_is_told_not_to_speak_it_offers_it_to_no_client
    Dir.mktmpdir do |folder|
      bind = "ssl://127.0.0.1:0?#{parameters(folder)}"
      serve(binds: [bind], http2: false) { |env| [200, {}, [env["SERVER_PROTOCOL"]]] }
      assert_equal "HTTP/1.1|1.1 200", curl("/", how: "--http2")
      @servings.last.first.stop(1)
    end
  end

  def test_a_stream_of_events_is_a_stream_of_the_connection
    handler = Class.new do
      def on_open(client)
        client.write("one", id: 1)
        client.write("two")
        client.close
      end
    end
    serve do |env|
      env["rack.upgrade"] = handler.new if env["rack.upgrade?"] == :sse
      [200, { "x-one" => "1" }, ["no events"]]
    end
    got = curl("/", "-N", "-i", "-H", "accept: text/event-stream")
    assert_match(/\AHTTP\/2 200 .*content-type: text\/event-stream.*x-one: 1/m, got)
    assert_match(/id: 1\ndata: one\n\ndata: two\n\n\|2 200\z/, got)
    assert_equal "no events|2 200", curl("/")
  end

  # The client has closed its half of the stream with the request.
  def test_a_stream_of_events_stays_open_until_a_side_ends_it
    clients, ended = 2.times.map { Thread::Queue.new }
    handler = Class.new do
      define_method(:on_open) { |client| clients << client.tap { client.write("one") } }
      define_method(:on_close) { |_| ended << 1 }
    end
    serve do |env|
      env["rack.upgrade"] = handler.new if env["rack.upgrade?"] == :sse
      [200, {}, []]
    end
    command = ["curl", "-sSN", "--noproxy", "*", "--http2-prior-knowledge", "--max-time",
               PATIENCE_SECONDS.to_s, "-H", "accept: text/event-stream", "http://#{@address[/[^\/]+\z/]}/"]
    [true, false].each do |is_server|
      out, said = IO.pipe
      pid = spawn(*command, out: said)
      said.close
      assert_equal "data: one\n", Timeout.timeout(PATIENCE_SECONDS) { out.gets }
      client = clients.pop
      8.times { curl("/") }
      assert_empty ended
      is_server ? client.tap { client.write("two") }.close : Process.kill("KILL", pid)
      Timeout.timeout(PATIENCE_SECONDS) do
        assert_equal is_server, Process.wait2(pid).last.to_i.zero?
        assert_equal is_server ? "\ndata: two\n\n" : "\n", out.read
        ended.pop
      end
    end
  end

  def test_a_response_that_ends_with_an_interim_status_is_a_500
    hijack = { "rack.hijack" => lambda(&:close) }
    answers = [[103, {}, []], [100, {}, ["a"].each], [101, {}, lambda(&:close)], [103, hijack, []]]
    Dir.mktmpdir do |folder|
      serve(binds: ["ssl://127.0.0.1:0?#{parameters(folder)}"]) do |env|
        answers.fetch(env["PATH_INFO"].delete("/").to_i, [200, {}, ["next"]])
      end
      urls = answers.each_index.map { |at| "#{@address.sub('ssl', 'https')}/#{at}" }
      said = stderr_of do
        got = curl("/9", "-w", "|%{http_code} %{num_connects}|", *urls, how: "--http2")
        assert_equal ["500 1", *["500 0"] * 3, "200 0"], got.scan(/\|(\d+ \d)\|/).flatten
      end
      assert_equal %w[103 100 101 103], said.scan(/(\d+) is not a final status/).flatten
      @servings.last.first.stop(1)
    end
  end

  def test_a_body_that_is_not_in_the_chunks_that_its_head_claims_never_looks_whole
    %W[junk 3\r\non 3\r\none\r\n].each do |body|
      serve do
        [200, { "transfer-encoding" => "chunked" }, ->(out) { out.write(body) and out.close }]
      end
      said = stderr_of do
        assert_raises(Minitest::Assertion, body) { curl("/") }
        eventually { $stderr.string.include?("it is not in chunks") }
      end
      assert_includes said, "cannot send a body: it is not in chunks, although its " \
                            "transfer-encoding is chunked"
    end
  end

  def test_the_environment_is_that_of_http_1_but_for_the_protocol
    serve(answer_with_environment)
    got = curl("/a%20b?c=d", "-H", "host: x.test:81", "-b", "a=1; b=2")
    assert_equal "GET,/a%20b,c=d,HTTP/2,http,x.test:81,a=1; b=2,,,false,0|2 200", got
    got = curl("/", "-H", "host: x.test", "--data-binary", "12345")
    assert_equal "POST,/,,HTTP/2,http,x.test,,5,,false,5|2 200", got
    got = curl("/", "-H", "host: x.test", "-I", "-o", File::NULL)
    assert_equal "|2 200", got
  end

  def test_large_bodies_come_whole_in_both_directions
    Dir.mktmpdir do |folder|
      large = File.join(folder, "large")
      File.binwrite(large, Random.new(1).bytes(3_000_000))
      serve do |env|
        body = env["rack.input"].read
        case env["PATH_INFO"]
        when "/file" then [200, {}, File.open(large, "rb")]
        when "/pieces" then [200, {}, body.scan(/.{1,70000}/mn)]
        else [200, {}, [body]]
        end
      end
      %w[/echo /pieces /file].each do |path|
        got = curl(path, "--data-binary", "@#{large}", "-o", File.join(folder, "got"))
        assert_equal "|2 200", got
        assert FileUtils.identical?(large, File.join(folder, "got")), path
      end
    end
  end

  def test_by_alpn_over_tls_and_clients_may_choose_http_1
    Dir.mktmpdir do |folder|
      serve(answer_with_environment, binds: ["ssl://127.0.0.1:0?#{parameters(folder)}"])
      host = ["-H", "host: x.test"]
      assert_equal "GET,/,,HTTP/2,https,x.test,,,,false,0|2 200", curl("/", *host, how: "--http2")
      got = curl("/", *host, how: "--http1.1")
      assert_equal "GET,/,,HTTP/1.1,https,x.test,,,,true,0|1.1 200", got
    end
  end

  def test_bodies_that_write_by_themselves_stream
    serve do |env|
      stream = lambda do |io|
        3.times { |number| io.write("#{number} ") && io.flush }
        io.close
      end
      if env["PATH_INFO"] == "/partial"
        [200, { "rack.hijack" => stream }, []]
      else
        [200, {}, stream]
      end
    end
    assert_equal "0 1 2 |2 200", curl("/")
    assert_equal "0 1 2 |2 200", curl("/partial")
  end

  def test_many_streams_of_one_client_are_all_served
    serve { |env| [200, {}, [env["PATH_INFO"]]] }
    address = @address[/\d+\z/]
    said, = Open3.capture2e("h2load", "-n", "600", "-c", "2", "-m", "30", "http://127.0.0.1:#{address}/")
    assert_includes said, "600 succeeded, 0 failed, 0 errored, 0 timeout"
  end

  # A frame of HTTP/2 with the fields of a GET.
  def get_frame(stream, path)
    fields = ["\x82\x86\x04", [path.bytesize].pack("C"), path, "\x41\x01a"].join.b
    [0, fields.bytesize, 1, 5, stream].pack("CnCCN") + fields
  end

  # Returns the streams of the heads that have arrived so far.
  def streams_of(bytes)
    streams = []
    until bytes.bytesize < 9
      high, low, kind, _, stream = bytes.unpack("CnCCN")
      streams << stream if kind == 1
      bytes = bytes.byteslice((9 + (high << 16) + low)..) || ""
    end
    streams
  end

  # Short responses wait for each other, but not for a slow request.
  def test_a_response_does_not_wait_while_the_next_request_takes_long
    ways = { "/sleeps" => ->(over) { sleep 0.01 until over.call },
             "/computes" => ->(over) { true until over.call } }
    ways.each_key do |path|
      is_over = false
      serve(threads: 1) do |env|
        ways[env["PATH_INFO"]]&.call(-> { is_over })
        [200, {}, ["x"]]
      end
      client = connect.io
      client.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n#{[0, 0, 4, 0, 0].pack("CnCCN")}",
                   get_frame(1, "/"), get_frame(3, path), get_frame(5, "/"))
      got = +"".b
      heads = lambda do
        some = client.read_nonblock(999, exception: false)
        got << some if some.is_a?(String)
        streams_of(got)
      end
      eventually { heads.call.any? }
      assert_equal [1], heads.call, path
      is_over = true
      eventually { heads.call.sort == [1, 3, 5] }
    end
  end

  def test_a_stop_says_goodbye_to_idle_clients
    server = serve { [200, {}, ["x"]] }
    assert_equal "x|2 200", curl("/")
    client = connect
    client.io.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n#{[0, 0, 0, 4, 0, 0].pack("C5N")}")
    eventually { client.io.read_nonblock(9, exception: false).is_a?(String) }
    server.stop(5)
    got = Timeout.timeout(PATIENCE_SECONDS) { client.io.read }.bytes
    # A length of eight and more bytes, the type of GOAWAY, and no flags.
    assert(got.each_cons(5).any? { |bytes| bytes in [0, 0, 8.., 7, 0] }, "there is no GOAWAY")
  end
end

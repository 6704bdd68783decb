# frozen_string_literal: true

require_relative "../serving"
require "thruway/application/compression"
require "thruway/application/middleware"
require "zlib"

# Responses that are compressed by the configuration.
class CompressionTest < Minitest::Test
  include Serving

  TEXT = "all roads lead there. " * 200
  GZIP = "Accept-Encoding: br, gzip;q=0.5\r\n"

  def serve_compressed(headers = {}, body = [TEXT], compress: true)
    configuration = Thruway::Configuration.new
    configuration.offer(:compress, compress)
    app = ->(_env) { [200, { "content-type" => "text/html" }.merge(headers), body] }
    serve(Thruway::Middleware.around(app, configuration))
  end

  def plain?(fields = GZIP, path = "/")
    response = get(path, fields)
    response["content-encoding"].nil?.tap { |plain| assert_equal TEXT, response.body if plain }
  end

  def test_a_long_text_is_compressed_if_the_client_takes_that
    length = TEXT.bytesize.to_s
    serve_compressed({ "etag" => '"abc"', "Content-Length" => length, "Vary" => "Accept" })
    response = get("/", GZIP)
    fields = %w[content-encoding etag vary content-length].map { |name| response[name] }
    expected = ["gzip", 'W/"abc"', "Accept, Accept-Encoding", response.body.bytesize.to_s]
    assert_equal expected, fields
    assert_equal [TEXT, true], [Zlib.gunzip(response.body), response.body.bytesize < 500]
    response = get
    assert_equal [nil, '"abc"', "Accept, Accept-Encoding", TEXT],
                 [response["content-encoding"], response["etag"], response["vary"], response.body]
    ["gzip;q=0", "br", "gzip; q=0.000", "*;q=0", "identity",
     "gzip;q=0.4, identity;q=0.5", "gzip;q=much"].each do |accept|
      assert plain?("Accept-Encoding: #{accept}\r\n"), accept
    end
    ["*", "x-gzip", "identity;q=0.5, GZIP", "*;q=0, gzip;q=0.001"].each do |accept|
      refute plain?("Accept-Encoding: #{accept}\r\n"), accept
    end
  end

  # A client would combine plain bytes from a range with compressed bytes.
  def test_what_is_compressed_offers_no_ranges
    serve_compressed({ "Accept-Ranges" => "bytes" })
    fields = %w[content-encoding accept-ranges]
    assert_equal ["gzip", nil], get("/", GZIP).headers.to_h.values_at(*fields)
    assert_equal "bytes", get["accept-ranges"]
  end

  def test_what_would_not_gain_is_left_alone
    [{ "content-type" => "image/png" }, { "content-type" => "text/event-stream" },
     { "content-encoding" => "identity" }, { "cache-control" => "no-transform" },
     { "cache-control" => "No-Transform" }, { "content-range" => "bytes 0-9/10" }].each do |headers|
      serve_compressed(headers)
      assert_equal TEXT, get("/", GZIP).body, headers.inspect
    end
    serve_compressed({}, ["short"])
    assert_equal "short", get("/", GZIP).body
  end

  def test_what_is_for_one_user_is_left_alone_unless_all_is_asked_for
    serve_compressed
    assert plain?("#{GZIP}Cookie: session=1\r\n")
    assert plain?("#{GZIP}Authorization: Bearer x\r\n")
    serve_compressed({ "cache-control" => "public, max-age=60" })
    refute plain?("#{GZIP}Cookie: session=1\r\n")
    [{ "set-cookie" => "a=b" }, { "cache-control" => "private" },
     { "cache-control" => "No-Store" }].each do |headers|
      serve_compressed(headers)
      assert plain?, headers.inspect
      serve_compressed(headers, compress: :all)
      refute plain?, headers.inspect
    end
  end

  def test_a_body_in_pieces_is_read_piece_by_piece
    gate = Queue.new
    closed = Queue.new
    body = Object.new
    body.define_singleton_method(:each) do |&block|
      block.call("one, ")
      gate.pop
      block.call("two")
    end
    body.define_singleton_method(:close) { closed << true }
    serve_compressed({}, body)
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n#{GZIP}\r\n")
    client.read_head
    inflate = Zlib::Inflate.new(31)
    text = +""
    within { text << inflate.inflate(read_chunk(client)) until text == "one, " }
    gate << true
    within { text << inflate.inflate(read_chunk(client)) until inflate.finished? }
    assert_equal "one, two", text
    assert(within { closed.pop })
  end

  def test_a_body_in_chunks_of_the_application_is_left_alone
    chunk = "#{TEXT.bytesize.to_s(16)}\r\n#{TEXT}\r\n"
    serve_compressed({ "transfer-encoding" => "chunked" }, [chunk, "0\r\n\r\n"].each)
    assert plain?
  end

  def test_pieces_without_a_byte_are_left_out
    serve_compressed({ "etag" => nil }, ["", "", TEXT, "", "", TEXT, ""].each)
    response = get("/", GZIP)
    assert_equal [TEXT * 2, "gzip"], [Zlib.gunzip(response.body), response["content-encoding"]]
  end

  def within(&block) = Timeout.timeout(PATIENCE_SECONDS, &block)

  def read_chunk(client)
    size = client.io.gets("\r\n").to_i(16)
    client.io.read(size).tap { client.io.read(2) }
  end

  def test_assets_with_a_digest_are_kept_for_ever
    configuration = Thruway::Configuration.new
    configuration.offer(:immutable_assets, "/assets")
    app = lambda do |env|
      [env["PATH_INFO"].include?("none") ? 404 : 200, { "Cache-Control" => "no-cache" }, []]
    end
    serve(Thruway::Middleware.around(app, configuration))
    forever = Thruway::ImmutableAssets::FOREVER
    expected = { "/assets/a-0123456789abcdef.js" => forever,
                 "/assets/x/logo.0a1b2c3d.svg" => forever, "/assets/a.js" => "no-cache",
                 "/assets/prices-20260131.pdf" => "no-cache",
                 "/assets/none-0123456789abcdef.js" => "no-cache",
                 "/other/a-0123456789abcdef.js" => "no-cache" }
    assert_equal expected, (expected.to_h { |path, _| [path, get(path)["cache-control"]] })
  end
end

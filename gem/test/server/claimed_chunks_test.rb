# frozen_string_literal: true

require "tempfile"

require_relative "../serving"

# An application's `transfer-encoding: chunked` is a claim about its body, as a content-length is:
# the body's own bytes never frame the response.
class ClaimedChunksTest < Minitest::Test
  include Serving

  CLAIM = { "Transfer-Encoding" => "chunked" }.freeze
  # Bodies that an attacker may have written, behind a proxy that forwards the field.
  WRONG = ["plain body", "0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
           "3\r\none\r\n0\r\n\r\nevil", "3\r\none\r\n", "4\r\none\r\n0\r\n\r\n", "-1\r\n",
           "0x3\r\none", "3\none\n0\n\n", "", "fffffffffffffffff\r\n"].freeze
  TWO = "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

  def stream(body)
    lambda do |out|
      out.write(body)
    rescue SystemCallError, IOError
      nil
    ensure
      out.close
    end
  end

  # Returns all bytes that answer two requests in a row, of which the first gets a body with a
  # claim.
  def answers_to(body, headers = CLAIM, threads: 2)
    serve(threads: threads) do |env|
      env["PATH_INFO"] == "/" ? [200, headers, body] : [200, {}, ["second"]]
    end
    connect.send(TWO).io.read
  rescue Errno::ECONNRESET
    ""
  end

  def test_an_array_that_is_not_in_chunks_is_an_error
    WRONG.each do |body|
      got = nil
      said = stderr_of { got = answers_to([body]) }
      assert got.start_with?("HTTP/1.1 500"), body.inspect
      assert got.end_with?("second"), body.inspect
      assert_includes said, "transfer-encoding is chunked, but the body is not in chunks"
    end
  end

  def test_no_other_body_is_followed_by_a_response_if_it_is_not_in_chunks
    WRONG.each do |body|
      [[body].each, [*body.chars].each, stream(body)].each do |kind|
        [1, 3].each do |threads|
          got = nil
          stderr_of { got = answers_to(kind, threads: threads) }
          next if got.start_with?("HTTP/1.1 500") && got.end_with?("second")

          refute_match(/evil|second|0\r\n\r\n/, got, "#{body.inspect} as #{kind.class}")
        end
      end
    end
  end

  def test_a_body_in_chunks_is_sent_in_the_server_s_own
    body = ["3;ext=\"x\"\r\none\r", "\n", "003\r\ntwo\r\n0\r\nTrailer: x\r\n\r\n"]
    claims = [CLAIM, { "transfer-encoding" => %w[chunked chunked] },
              { "transfer-encoding" => "Chunked", "content-length" => "5" }]
    claims.product([body, body.each, stream(body.join)]) do |headers, kind|
      first = answers_to(kind, headers)
      assert_equal 2, first.scan("HTTP/1.1 200").size
      head, rest = first.split("\r\n\r\n", 2)
      assert_equal 1, head.downcase.scan("transfer-encoding: chunked").size
      refute_match(/content-length/i, head)
      assert_match(/\A3\r\none\r\n3\r\ntwo\r\n0\r\n\r\nHTTP|\A6\r\nonetwo\r\n0\r\n\r\nHTTP/, rest)
    end
  end

  def test_a_claim_holds_for_its_own_response_only
    serve do |env|
      claims = env["PATH_INFO"] == "/claims"
      [200, claims ? CLAIM : {}, [claims ? "3\r\none\r\n0\r\n\r\n" : "plain"].each]
    end
    client = connect
    3.times do
      assert_equal "one", client.request("/claims").body
      2.times { assert_equal "plain", client.request.body }
    end
  end

  def test_a_file_that_claims_chunks_is_asked_for_its_pieces
    Tempfile.create("body") do |file|
      file.write("3\r\none\r\n0\r\n\r\n")
      file.flush
      body = ["3\r\ntwo\r\n0\r\n\r\n"].each
      body.define_singleton_method(:to_path) { file.path }
      assert_includes answers_to(body), "3\r\ntwo\r\n0\r\n\r\nHTTP"
    end
  end

  def test_a_response_without_a_body_claims_nothing
    [[204, "GET"], [205, "GET"], [304, "GET"], [200, "HEAD"]].each do |status, method|
      serve { [status, CLAIM, []] }
      client = connect
      response = client.request("/", method: method)
      assert_equal status, response.status
      assert_nil response["transfer-encoding"]
      assert_equal status, client.request("/", method: method).status
    end
  end

  def test_a_connection_that_closes_is_not_said_to_be_kept_alive
    serve { [200, { "connection" => "keep-alive" }, ["body"]] }
    fields = get("/", "Connection: close\r\n").headers.select { |name, _| name == "connection" }
    assert_equal [%w[connection close]], fields
  end
end

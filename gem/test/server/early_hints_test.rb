# frozen_string_literal: true

require_relative "../serving"

require "thruway/application/middleware"

# Fields that precede a response (103), by `rack.early_hints`.
class EarlyHintsTest < Minitest::Test
  include Serving

  LINK = "</style.css>; rel=preload; as=style"

  def serve_with(early_hints: true, &block)
    configuration = Thruway::Configuration.new
    configuration.offer(:early_hints, early_hints)
    serve(Thruway::Middleware.around(block, configuration))
  end

  def test_hints_come_before_the_response_and_each_call_is_one
    serve_with do |env|
      env["rack.early_hints"].call("link" => LINK)
      env["rack.early_hints"].call("link" => ["<a>; rel=preload", "<b>; rel=preload"])
      [200, { "link" => LINK }, ["page"]]
    end
    client = connect
    2.times do
      client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
      assert_equal [103, [["link", LINK]]], client.read_head
      assert_equal [103, [["link", "<a>; rel=preload"], ["link", "<b>; rel=preload"]]],
                   client.read_head
      response = client.response
      assert_equal [200, "page", LINK], [response.status, response.body, response["link"]]
    end
  end

  def test_a_client_of_http_1_0_gets_none
    serve_with do |env|
      env["rack.early_hints"].call("link" => LINK)
      [200, {}, ["page"]]
    end
    assert_equal 200, connect.send("GET / HTTP/1.0\r\n\r\n").response.status
  end

  def test_what_would_break_the_head_is_left_out
    serve_with do |env|
      hints = env["rack.early_hints"]
      hints.call("li nk" => "a", "x\r\ny" => "a", "" => "a")
      hints.call("a" => "1\r2", "b" => "1\n2", "c" => "\0", "d" => nil)
      [200, {}, ["page"]]
    end
    client = connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert_equal [103, [%w[b 1], %w[b 2]]], client.read_head
    assert_equal "page", client.response.body
  end

  def test_a_hint_after_the_response_has_no_effect
    kept = nil
    serve_with do |env|
      kept&.call("link" => LINK)
      kept = env["rack.early_hints"]
      [200, {}, ["page"]]
    end
    client = connect
    2.times { assert_equal "page", client.request.body }
  end

  def test_it_is_not_there_unless_it_is_said
    serve_with(early_hints: false) { |env| [200, {}, [env.key?("rack.early_hints").to_s]] }
    assert_equal "false", get.body
  end
end

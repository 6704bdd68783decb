# frozen_string_literal: true

require_relative "../serving"

class AfterTest < Minitest::Test
  include Serving

  def test_callbacks_come_after_the_answer
    told = Queue.new
    gate = Queue.new
    serve do |env|
      env["rack.after_reply"] << -> { gate.pop && told << :after_reply }
      env["rack.response_finished"] << ->(*arguments) { told << [:first, *arguments] }
      env["rack.response_finished"] << ->(*) { told << :last_registered }
      [201, { "x-a" => "b" }, ["done"]]
    end
    assert_equal "done", get.body
    gate << true
    assert_equal :after_reply, told.pop
    assert_equal :last_registered, told.pop
    name, env, status, headers, error = told.pop
    assert_equal [:first, 201, { "x-a" => "b" }, nil], [name, status, headers, error]
    assert_equal "/", env["PATH_INFO"]
  end

  def test_a_callback_learns_of_the_error
    told = Queue.new
    serve do |env|
      env["rack.response_finished"] << ->(_, status, _, error) { told << [status, error&.message] }
      raise "lost"
    end
    stderr_of { get }
    assert_equal [500, "lost"], told.pop
  end

  def test_one_callback_that_fails_stops_no_other
    told = Queue.new
    serve do |env|
      env["rack.after_reply"] << -> { raise "first fails" }
      env["rack.after_reply"] << -> { told << :second }
      [200, {}, []]
    end
    said = stderr_of do
      assert_equal 200, get.status
      assert_equal :second, told.pop
    end
    assert_includes said, "first fails"
  end
end

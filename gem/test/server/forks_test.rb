# frozen_string_literal: true

require_relative "../commands"

# Processes that an application forks in a request are not servers.
class ForksTest < Minitest::Test
  include Commands

  # An application that responds with the exit status of a child.
  APP = <<~'RUBY'
    # The parent waits for the child, which gets the same stream to write to.
    def self.answer(pid)
      Process.wait(pid) if pid
      pid ? "parent" : "child"
    end
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/" then return [200, {}, ["served"]]
      when "/block" then Process.wait(fork { exit 5 })
      when "/each" then return [200, {}, Enumerator.new { |body| body << answer(fork) }]
      when "/stream" then return [200, {}, ->(stream) { stream.write(answer(fork)) && stream.close }]
      else
        pid = fork
        case !pid && env["PATH_INFO"]
        when "/exit" then exit 3
        when "/exit!" then exit! 4
        when "/raise" then raise "in the child"
        end
        Process.wait(pid) if pid
      end
      [200, {}, [$?&.exitstatus.to_s]]
    end)
  RUBY

  def setup
    super
    write("config.ru", APP)
  end

  [%w[-w 0 -t 2], %w[-w 2 -t 1]].each do |arguments|
    define_method(:"test_a_forked_process_takes_nothing_of_its_parents_with_#{arguments.join}") do
      pid = start(*arguments)
      { "/block" => "5", "/exit" => "3", "/exit!" => "4", "/raise" => "1",
        "/return" => "1" }.each do |path, status|
        assert_equal status, ask(path), path
        8.times { assert_equal "served", ask("/"), path }
      end
      assert_includes File.read(@log), "a forked process has returned from a request"
      assert_predicate stop(pid), :success?
    end
  end

  def test_a_process_that_is_forked_while_a_body_is_written_writes_nothing
    pid = start("-w", "0", "-t", "1")
    client = connect
    %w[/each /stream].each do |path|
      Timeout.timeout(PATIENCE_SECONDS) do
        assert_equal "parent", client.request(path).body, path
        8.times { assert_equal "served", client.request("/").body }
      end
    end
    assert_includes File.read(@log), "a forked process has returned from a request"
    assert_predicate stop(pid), :success?
  end

  def ask(path)
    Timeout.timeout(PATIENCE_SECONDS) { get(path).body }
  end
end

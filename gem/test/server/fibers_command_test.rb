# frozen_string_literal: true

require_relative "../commands"

class FibersCommandTest < Minitest::Test
  include Commands

  # The part of Rails that the application uses: the level that its configuration has set by the
  # end of boot.
  RAILS = <<~RUBY
    module ActiveSupport
      module IsolatedExecutionState
        class << self
          attr_accessor :isolation_level
        end
        self.isolation_level = :thread
      end
    end
    module Rails
      Settings = Struct.new(:active_support, :isolation_level)
      APPLICATION = Struct.new(:config).new(Settings.new(Settings.new))
      def self.application = APPLICATION
      class Railtie
        def self.config = self
        def self.before_configuration = yield(Rails.application)
      end
    end
  RUBY

  def test_fibers_of_several_workers_wait_together
    write("config.ru", "run ->(_) { sleep 0.3; [200, {}, [Process.pid.to_s]] }")
    pid = start("--fibers", "20", "-w", "2", "-t", "1")
    clients = Array.new(40) { connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") }
    assert_equal [200], clients.map { |client| client.response.status }.uniq
    assert_predicate stop(pid), :success?
  end

  STREAM = <<~RUBY
    class Stream
      def each
        yield Process.pid.to_s
        sleep 0.01 until File.exist?(File.join(__dir__, "gate"))
        yield "end"
      end
    end
    run ->(env) { [200, {}, env["PATH_INFO"] == "/" ? Stream.new : [Process.pid.to_s]] }
  RUBY

  def test_a_killed_worker_takes_only_its_own_waiting_requests_with_it
    write("config.ru", STREAM)
    pid = start("--fibers", "200", "-w", "2", "-t", "1")
    clients = Array.new(200) { connect.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") }
    workers = clients.map { |client| client.read_head && client.io.gets && client.io.gets.to_i }
    Process.kill(:KILL, workers[0])
    lost, kept = clients.zip(workers).partition { |_, worker| worker == workers[0] }
    lost.each { |client, _| assert_predicate client, :closed? }
    write("gate", "")
    kept.each { |client, _| assert_equal "3\r\nend\r\n0\r\n\r\n", client.io.read(13) }
    refute_equal workers[0], get("/worker").body.to_i
    assert_predicate stop(pid), :success?
  end

  def test_a_number_that_is_no_limit_is_refused
    write("config.ru", HELLO)
    write("puma.rb", "fibers 30_001")
    said = refusal(@folder, "-C", File.join(@folder, "puma.rb"))
    assert_includes said, "cannot run 30001 requests in fibers: it must be 0 to 30000"
  end

  def test_rails_that_keeps_state_by_thread_is_refused
    write("config.ru", "#{RAILS}\n#{HELLO}")
    said = refusal(@folder, "-p", "0", "--fibers", "20")
    assert_includes said, "cannot run Rails in fibers: its state is kept by thread"
    assert_includes said, "add config.active_support.isolation_level = :fiber"
    start
    assert_equal 200, get.status
  end

  def test_rails_is_told_in_time
    told = "ActiveSupport::IsolatedExecutionState.isolation_level = " \
           "Rails.application.config.active_support.isolation_level"
    write("config.ru", "#{RAILS}\n#{told}\n#{HELLO}")
    start("--fibers", "20")
    assert_equal 200, get.status
  end

  def test_the_log_tells_of_a_pool_that_is_smaller_than_the_fibers
    pool = "module ActiveRecord\n  module Base\n    def self.connection_db_config\n      " \
           "Struct.new(:pool).new(5)\n    end\n  end\nend\n"
    level = "ActiveSupport::IsolatedExecutionState.isolation_level = :fiber\n"
    write("config.ru", "#{RAILS}#{level}#{pool}#{HELLO}")
    start("--fibers", "20")
    assert_includes File.read(@log), "ActiveRecord's pool has 5 connections for up to 20 fibers"
    start("-t", "5")
    assert_empty File.read(@log)
  end
end

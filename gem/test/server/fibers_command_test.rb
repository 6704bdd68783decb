# frozen_string_literal: true

require_relative "../commands"

class FibersCommandTest < Minitest::Test
  include Commands

  # The part of Rails that the application uses: the isolation level that its configuration has set
  # by the end of the boot.
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

  POOLS = <<~RUBY
    module ActiveRecord
      Pool = Struct.new(:size) { def db_config = Struct.new(:name).new("primary") }
      module Base
        def self.connection_handler = self
        def self.connection_pool_list(_) = [Pool.new(5), Pool.new(nil)]
      end
      def self.version = Gem::Version.new("8.1.0")
    end
    ActiveSupport::IsolatedExecutionState.isolation_level = :fiber
    def (ActiveSupport::IsolatedExecutionState).context = Fiber.current
  RUBY

  def test_the_log_tells_of_a_pool_that_is_smaller_than_the_fibers
    write("config.ru", "#{RAILS}#{POOLS}#{HELLO}")
    start("--fibers", "20")
    assert_match(/Active Record's pool has 5 .*connections for up to 20 fibers/, File.read(@log))
    start("-t", "5")
    assert_empty File.read(@log)
  end

  def test_rails_whose_pools_do_not_know_fibers_is_refused
    write("config.ru", "#{RAILS}#{POOLS.lines[..-2].join}#{HELLO}")
    said = refusal(@folder, "-p", "0", "--fibers", "20")
    assert_includes said, "cannot run Active Record before 7.1 in fibers"
  end

  def test_rails_without_a_state_by_fiber_is_refused
    write("config.ru", "module Rails\n  class Application; end\nend\n#{HELLO}")
    said = refusal(@folder, "-p", "0", "--fibers", "20")
    assert_includes said, "cannot run Rails before 7.0 in fibers"
  end

  I18N = <<~RUBY
    module I18n
      def self.config
        return Thread.current[:config] ||= Object.new if File.exist?("by_fiber")

        Thread.current.thread_variable_get(:config) ||
          Object.new.tap { |config| Thread.current.thread_variable_set(:config, config) }
      end
    end
  RUBY

  def test_the_log_tells_of_a_locale_that_requests_of_a_thread_share
    write("config.ru", "#{I18N}#{HELLO}")
    start("--fibers", "2")
    assert_includes File.read(@log), "I18n keeps the locale by thread"
    write("by_fiber", "")
    start("--fibers", "2")
    assert_empty File.read(@log)
  end
end

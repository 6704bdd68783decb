# frozen_string_literal: true

require "installed"
require "json"

require_relative "../commands"

# The log and the doctor name pools of connections that are smaller than the number of requests that
# may use them at the same time.
class DatabasePoolsTest < Minitest::Test
  include Commands
  include Installed

  # Any connection would fail: the folders of the databases are not there.
  TWO_POOLS = <<~'RUBY'
    require "active_record"
    POOL = ->(size) { { adapter: "sqlite3", database: "none/file", pool: size } }
    ActiveSupport.on_load(:active_record) { establish_connection(POOL[5]) }
    ANIMALS = lambda do
      Object.const_set(:Animals, Class.new(ActiveRecord::Base) { self.abstract_class = true })
      Animals.establish_connection(POOL["3"])
    end
    ANIMALS.call if File.exist?("eager")
    run ->(env) { [200, {}, [(env["PATH_INFO"] == "/load" && ANIMALS.call).to_s]] }
  RUBY

  TOLD = /^thruway: Active Record's pools? ha.*$/

  def setup
    super
    %w[activerecord sqlite3].each { |name| skip_without(name) }
  end

  def log = File.read(@log)

  def test_the_log_names_the_pools_that_are_smaller_than_the_threads
    write("config.ru", TWO_POOLS)
    write("eager", "")
    start("-t", "1:4", "--waiting-threads", "8", "-w", "2")
    assert_equal ["thruway: Active Record's pools have 5 (\"primary\") and 3 (\"primary\") " \
                  "connections for up to 12 threads: requests beyond that wait for a connection; " \
                  "set `pool` in config/database.yml"], log.scan(TOLD).sort
    start("-t", "5")
    assert_match(/pool has 3 \("primary"\) connections for up to 5 threads/, log)
    start("-t", "3")
    assert_empty log
  end

  def test_active_record_that_is_loaded_later_is_checked_then
    write("config.ru", TWO_POOLS)
    start("-t", "6")
    assert_empty log
    assert_equal 200, get("/load").status
    assert_match(/pool has 5 connections for up to 6 threads/, log)
  end

  def test_active_record_that_keeps_connections_by_thread_does_not_run_in_fibers
    write("config.ru", TWO_POOLS)
    said = refusal(@folder, "-p", "0", "--fibers", "2")
    require "active_record/version"
    cause, cure =
      if ActiveRecord.version < Gem::Version.new("7.1")
        ["Active Record before 7.1 in fibers: it keeps connections by",
         "use waiting_threads instead of fibers"]
      else
        ["Rails in fibers: its state is kept by thread",
         "add config.active_support.isolation_level = :fiber to config/application.rb"]
      end
    assert_includes said, "cannot run #{cause}"
    assert_includes said, "hint: #{cure}"
  end

  SEQUEL = <<~RUBY
    Base = Struct.new(:opts, :pool)
    module Sequel
      DATABASES = [Base.new({ database: "a" }, Struct.new(:max_size).new(4))]
      def self.current = File.exist?("fibers") ? Fiber.current : Thread.current
    end
    run ->(_) { [200, {}, []] }
  RUBY

  def test_sequel_needs_its_extension_for_fibers
    write("config.ru", SEQUEL)
    said = refusal(@folder, "-p", "0", "--fibers", "5")
    assert_includes said, "cannot run Sequel in fibers: it keeps connections by thread"
    write("fibers", "")
    start("--fibers", "5")
    assert_includes log, "Sequel's pool has 4 connections for up to 5 fibers"
  end

  def doctor(*environment)
    said, = Open3.capture2(*environment, BINARY, "doctor", "--json", chdir: @folder)
    names = ["application", "database pool"]
    JSON.parse(said)["checks"].select { |check| names.include?(check["name"]) }
        .map { |check| check.values_at("state", "told", "cure") }
  end

  def test_the_doctor_boots_the_application_and_checks_its_pools
    assert_empty doctor
    write("config.ru", "puts 1; at_exit { puts 2 }\n#{TWO_POOLS}")
    write("config/puma.rb", "threads 1, 5\nwaiting_threads 3\n")
    told = "Active Record's pool has 5 connections for up to 8 threads: requests beyond that " \
           "wait for a connection"
    assert_equal [["ok", "it boots as test", nil],
                  ["less", told, "set `pool` in config/database.yml"]],
                 doctor({ "RACK_ENV" => "test" })
    write("config/puma.rb", "threads 1, 5\n")
    assert_equal ["ok", "Active Record: enough connections for 5 threads", nil], doctor.last
    write("config.ru", "raise 'no key'")
    state, told, = doctor.first
    assert_equal "no", state
    assert_match(/the application raised RuntimeError at boot: no key/, told)
    write("config.ru", "exit 3")
    assert_equal ["no", "failed to boot: no error message"], doctor.first.first(2)
  end
end

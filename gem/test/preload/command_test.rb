# frozen_string_literal: true

require "preloading"

# A fork of a booted application is the command: no difference is seen.
class PreloadCommandTest < Minitest::Test
  include Preloading

  # One application and one template for all: none of these commands changes a file.
  def self.application
    @application ||= Preloading::Application.new.tap do |made|
      made.plain("bin/rails", "runner", "0")
      Minitest.after_run { made.remove }
    end
  end

  def forked(code, *arguments, **options)
    self.class.application.forked("bin/rails", "runner", code, *arguments, **options)
  end

  def assert_same(code, *arguments, **options)
    words = ["bin/rails", "runner", code, *arguments]
    plain = self.class.application.plain(*words, **options)
    forked = forked(code, *arguments, **options)
    assert_said plain, forked, code
    forked
  end

  def test_arguments_and_names
    said = assert_same("p ARGV, $0, $PROGRAM_NAME, __FILE__, Rails.env, Dir.pwd", "a", "b c", "")
    assert_includes said.out, '["a", "b c", ""]'
  end

  def test_status_and_signals
    ["exit 7", "exit!(3)", "abort 'why'", "Process.kill(:TERM, $$); sleep",
     "Process.kill(:KILL, $$); sleep"].each { |code| assert_same(code) }
  end

  def test_streams
    assert_same("print $stdin.read.upcase; warn 'said'", input: "given\n")
    assert_same("p [$stdin, $stdout, $stderr].map { |io| [io.tty?, io.sync, io.fileno] }")
  end

  def test_ends_in_order
    assert_same("at_exit { puts 1 }; at_exit { puts 2; exit 4 }; END { puts 3 }")
  end

  def test_backtraces
    # Below that are frames of how RubyGems finds the script's first feature: its gem is active.
    command = "grep_v(/kernel_require|zeitwerk.*kernel/)"
    assert_same("puts caller.#{command}; def m = raise('x'); m rescue puts $!.backtrace.#{command}")
  end

  def test_environment
    own = "ENV.to_h.reject { |name, _| name =~ /THRUWAY|RUBYOPT|RUBYLIB|^_$/ }.sort"
    said = assert_same("p #{own}", env: { "GIVEN" => "1", "TERM" => "dumb" })
    assert_includes said.out, '["GIVEN", "1"]'
  end

  def test_descriptors
    IO.pipe do |reader, writer|
      writer.write("passed")
      writer.close
      list = "Dir.children('/proc/self/fd').map(&:to_i).sort.reject { |n| n > 20 }.size"
      said = assert_same("puts #{list}; puts File.stat('/proc/self/fd/17').pipe?", 17 => reader)
      assert_includes said.out, "true"
      # The plain run has not read it.
      assert_equal "passed", forked("print IO.for_fd(17).read", 17 => reader).out
    end
  end

  CHILDREN = [
    "puts `echo 1`; p $?.exitstatus", "Process.wait(fork { exit 3 }); p $?.exitstatus",
    "exec 'echo', 'x'", "p system('exit 2'), $?.exitstatus",
    "p Process.wait2(spawn('kill $$')).last.termsig", "trap(:CHLD) { puts 1 }; `true`; sleep 0.1",
    "begin; Process.wait; rescue Errno::ECHILD; puts 'none'; end",
    "p trap(:CHLD, 'DEFAULT'), trap(:INT, 'DEFAULT'), trap(:TERM, 'DEFAULT')"
  ].freeze

  def test_children
    CHILDREN.each { |code| assert_same(code) }
  end

  def test_features_and_constants
    code = "puts $LOADED_FEATURES.grep_v(/thruway/).sort, Object.constants.grep_v(/Thruway/).sort"
    assert_same(code)
    assert_same("puts $LOAD_PATH.reject { |folder| folder.include?('/target/') }")
  end

  def test_random_numbers_are_of_each_command_alone
    numbers = Array.new(3) { forked("p rand, Random.rand, [*1..99].sample").out }
    assert_equal 3, numbers.uniq.size
  end

  def test_the_database_is_reached_by_each
    4.times do
      assert_same("connection = ActiveRecord::Base.connection; p connection.tables.sort")
    end
  end

  def test_a_daemon_outlives_the_command
    file = self.class.application.path("tmp/daemon")
    File.delete(file) if File.exist?(file)
    done = "File.write(#{file.dump}, Process.getsid == Process.pid)"
    said = forked("Process.daemon(true); sleep 0.2; #{done}")
    assert said.status.success?, said.to_s
    Timeout.timeout(PATIENCE_SECONDS) { sleep 0.05 until File.exist?(file) && !File.empty?(file) }
  end
end

# frozen_string_literal: true

require "preloading"

# Where a fork could be wrong, there is no template, and the reason is reported.
class PreloadRefusalTest < Minitest::Test
  include Preloading

  def refusal_of(initializer)
    application do |made|
      made.write("config/initializers/odd.rb", initializer)
      words = ["bin/rails", "runner", "puts 1"]
      plain = made.plain(*words)
      assert_predicate plain.status, :success?, plain.to_s
      assert_said plain, made.preloaded(*words)
      reason = made.await_template
      assert_empty made.templates
      said = made.preloaded(*words)
      assert_said plain, said
      assert_equal "booted, since there is no template: #{reason}", said.how
      reason
    end
  end

  REASONS = {
    "Thread.new { sleep }" => "it starts a thread",
    "require 'socket'; $kept = UNIXSocket.pair" => "it has an open socket",
    "trap(:USR2) {}" => "it changes a signal's handler",
    "Dir.chdir('/')" => "it changes the current folder",
    "File.umask(0o77)" => "it changes the umask",
    "require 'coverage'; Coverage.start" => "Coverage is running",
    "`true`" => "it starts ",
    "$stdin.getc" => "it reads its standard input",
    "$stdout.reopen('tmp/known', 'a')" => "it opens a standard stream anew",
    "$stdin.close" => "it changes a standard stream",
    "$kept = IO.pipe" => "it has an open pipe",
    "$kept = File.open('tmp/known'); $kept.flock(File::LOCK_SH)" => "it has a lock on ",
    "$kept = File.open('tmp/known', 'w')" => "tmp/known open for writing other than by appending"
  }.freeze

  def test_boots_that_no_fork_could_repeat
    REASONS.each { |initializer, reason| assert_includes refusal_of(initializer), reason }
  end

  def test_a_script_whose_arguments_have_switches_for_ruby
    application do |made|
      made.write("said.rb", "require_relative 'config/application'\np $given, ARGV\n")
      words = ["ruby", "-s", "said.rb"]
      made.preloaded(*words, "-given=1", "a")
      assert_includes made.await_template, "takes switches out of its script's arguments"
      assert_said made.plain(*words, "b"), made.preloaded(*words, "b")
    end
  end

  def test_the_report_says_why_commands_were_booted
    application do |made|
      made.write("config/initializers/odd.rb", "Thread.new { sleep }")
      words = ["bin/rails", "runner", "puts 1"]
      made.preloaded(*words)
      made.await_template
      made.preloaded(*words)
      report = made.reports.first
      assert_equal ["none", words.join(" "), 2], report.values_at("state", "command", "misses")
      reasons = report["last_misses"].map { |miss| miss["reason"] }
      assert_equal "there is no template yet", reasons.first
      assert_includes reasons.last, "it starts a thread"
      assert_includes made.thruway("preload", "status"), "2 booted, the last one"
      made.thruway("preload", "stop")
      assert_empty made.reports
    end
  end

  def test_a_template_that_takes_too_much_memory
    application do |made|
      env = { "THRUWAY_PRELOAD_MB" => "1" }
      words = ["bin/rails", "runner", "puts 1"]
      made.preloaded(*words, env: env)
      assert_match(/\Ait uses \d+ MB, and 1 are allowed\z/, made.await_template)
      assert_equal "1\n", made.preloaded(*words, env: env).out
      made.forked(*words)
    end
  end

  def test_an_application_that_raises_says_so_each_time
    application do |made|
      made.write("config/initializers/odd.rb", "raise 'not today'")
      words = ["bin/rails", "runner", "puts 1"]
      plain = made.plain(*words)
      3.times { assert_said plain, made.preloaded(*words) }
      # Features before the application may be loaded in advance. The error is raised in the fork.
      assert_said plain, made.forked(*words)
    end
  end

  def test_the_user_and_the_machine_may_not_want_it
    application do |made|
      words = ["bin/rails", "runner", "puts 1"]
      assert_equal "booted, since CI is set", made.preloaded(*words, env: { "CI" => "true" }).how
      off = made.preloaded(*words, env: { "THRUWAY_PRELOAD" => "0" })
      assert_equal "booted, since THRUWAY_PRELOAD is 0", off.how
      assert_empty made.templates
      File.chmod(0o777, made.folder)
      open = made.preloaded(*words).how
      assert_includes(open, "others can write") if Process.euid.zero?
    end
  end
end

# frozen_string_literal: true

require "minitest"

# Fails a hanging test by name, so that the remaining tests still run. The output shows the threads
# of this process and the processes of the machine. Code that never releases Ruby's lock cannot be
# ended in this way. The name of such a test is missing after the names of the finished tests.
module Deadline
  # Many times the duration of the slowest test on a busy machine.
  SECONDS = 600
  # The time for `ensure` clauses before the whole run is aborted.
  GRACE_SECONDS = 60

  # Not a StandardError, so that no `rescue` of the test catches it.
  class Passed < Exception # rubocop:disable Lint/InheritException
  end

  def run
    watcher = Thread.new(Thread.current) { |thread| watch(thread) }
    super
  ensure
    watcher&.kill
  end

  private

  def watch(thread)
    sleep(SECONDS)
    show
    thread.raise(Passed, "#{self.class}##{name} ran for more than #{SECONDS} s")
    sleep(GRACE_SECONDS)
    warn("#{self.class}##{name} does not end: the run is given up")
    exit!(1)
  end

  def show
    warn("#{self.class}##{name} hangs")
    Thread.list.each { |thread| warn(thread.inspect, *thread.backtrace, "") }
    columns = "pid,ppid,stat,wchan:20,etime,args"
    system("ps", "-e", "--forest", "-o", columns, "--cols", "160", out: :err)
  end
end

# A script that runs the tests in the background makes them ignore these signals. All programs that
# the tests start would inherit that.
%w[HUP INT QUIT].each { |signal| trap(signal, "DEFAULT") }

Minitest::Test.prepend(Deadline)
# The names of finished tests appear as the tests finish.
$stdout.sync = true

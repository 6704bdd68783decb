# frozen_string_literal: true

require "minitest"

# A test that hangs fails by name, so that the tests behind it still run. What it waited for is
# shown: the threads of this process, and the processes of the machine. What never gives Ruby's lock
# back cannot be ended so: its name is missing behind those that were shown.
module Deadline
  # Many times what the slowest test takes on a busy machine.
  SECONDS = 600
  # How long `ensure` clauses may take before the whole run is given up.
  GRACE_SECONDS = 60

  # Not a StandardError: no `rescue` of the test may keep it.
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

# A script that runs the tests in the background makes them ignore these signals, and all programs
# that the tests start would ignore them as well.
%w[HUP INT QUIT].each { |signal| trap(signal, "DEFAULT") }

Minitest::Test.prepend(Deadline)
# The names of the tests that ended, as they end.
$stdout.sync = true

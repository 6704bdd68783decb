# frozen_string_literal: true

require "io/wait"

# A Ruby that waits right before it opens its script, and forks for each plain run. The Ruby starts
# as a plain run does, with one additional feature (`plain_run.rb`), and contains none of Thruway's
# code.
class PlainRuby
  FEATURE = File.expand_path("plain_run.rb", __dir__)
  # The time after which a command counts as hung.
  PATIENCE_SECONDS = 60

  # The parts of a status that `Preloading::Said` needs.
  Status = Struct.new(:exitstatus, :termsig)

  # `words` are Ruby, its options and its script.
  def initialize(words, environment, folder)
    orders, @orders = IO.pipe
    @answers, answers = IO.pipe
    *before, script = words
    streams = { in: orders, out: answers }
    @process = spawn(environment, *before, "-r#{FEATURE}", script, **streams, chdir: folder)
    [orders, answers].each(&:close)
  end

  # Runs the script with these arguments, variables and files for its streams. Returns the status.
  def run(arguments, variables, streams)
    @orders.puts([Marshal.dump([arguments, variables, streams])].pack("m0"))
    ready = @answers.wait_readable(PATIENCE_SECONDS)
    raise "waited #{PATIENCE_SECONDS} s in vain for a plain run" unless ready

    Status.new(*Marshal.load(@answers.gets.unpack1("m")))
  end

  def end
    [@orders, @answers].each(&:close)
    Process.wait(@process)
  end
end

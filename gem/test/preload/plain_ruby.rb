# frozen_string_literal: true

require "io/wait"

# A Ruby that waits right before it opens its script, and is forked for each plain run. It is
# started as a plain run is, with one feature more (`plain_run.rb`). It has nothing of
# Thruway's code.
class PlainRuby
  FEATURE = File.expand_path("plain_run.rb", __dir__)
  # A command that takes longer is taken to hang.
  PATIENCE_SECONDS = 60

  # Of a status, what `Preloading::Said` asks for.
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

  # Answers with the status of a run that has these arguments, variables and files for its streams.
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

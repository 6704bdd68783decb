# frozen_string_literal: true

require_relative "failure"
require_relative "signals"

module Thruway
  # Where stdout and stderr go (`stdout_redirect`), and how often they are written.
  class Redirection
    # The descriptors belong to the process, whatever the application makes of `$stdout`.
    STREAMS = { stdout: [1, STDOUT], stderr: [2, STDERR] }.freeze

    # Gives each standard stream that the application has lost to `/dev/null`: what is opened next
    # would get its number, and its lines.
    def self.fill
      loop do
        file = File.open(File::NULL, "r+")
        break file.close unless file.fileno <= STREAMS[:stderr].first

        file.autoclose = false
      end
    end

    def initialize(configuration)
      @syncs = configuration.syncs_output
      @redirect = configuration.redirect || {}
    end

    # At the start: files are emptied, unless they are to be continued.
    def begin(continues: false)
      reopen(continues || @redirect[:append] ? "a" : "w") do |error|
        raise Failure, "cannot redirect the output: #{error.message}"
      end
    end

    # On HUP: the files may have got other names. A file that cannot be opened leaves its stream
    # where it is. It may be called from a trap.
    def renew
      return Signals.write("thruway: HUP: there is no stdout_redirect to be reopened\n") if idle?

      reopen("a") do |error|
        Signals.write("thruway: cannot redirect the output: #{error.message}\n")
      end
    end

    # Whether both stay where they are.
    def idle?
      @redirect.values_at(:stdout, :stderr).none?
    end

    private

    def reopen(mode)
      STREAMS.each do |name, (number, io)|
        io.sync = true if @syncs && !io.closed?
        lead(number, @redirect[name].to_s, mode) if @redirect[name]
      rescue SystemCallError, IOError => e
        yield e
      end
    end

    # The file is open before the descriptor leaves the old one: `reopen(path)` closes that first,
    # and the next socket would get the number of a log. The stream of the descriptor's own has
    # nothing to flush, so an old file on a full disk does not matter.
    def lead(number, path, mode)
      File.open(path, mode) { |file| IO.for_fd(number, autoclose: false).reopen(file) }
    end
  end
end

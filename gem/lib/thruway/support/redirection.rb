# frozen_string_literal: true

require_relative "failure"
require_relative "signals"

module Thruway
  # Redirects stdout and stderr to files (`stdout_redirect`), and reopens these files.
  class Redirection
    # The descriptors and streams of the process. The application may have replaced `$stdout`.
    STREAMS = { stdout: [1, STDOUT], stderr: [2, STDERR] }.freeze

    # Opens `/dev/null` in place of each standard stream that the application has closed. Otherwise
    # the next socket would get the number of the stream, and the stream's output.
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

    # Opens the files at the start, truncated unless `continues` or `append` is set.
    def begin(continues: false)
      reopen(continues || @redirect[:append] ? "a" : "w") do |error|
        raise Failure, "cannot redirect the output: #{error.message}"
      end
    end

    # Reopens the files after HUP, because log rotation may have renamed them. If a file cannot be
    # opened, its stream keeps the old file. May be called from a trap.
    def renew
      return Signals.write("thruway: HUP has no effect: stdout_redirect is not set\n") if idle?

      reopen("a") do |error|
        Signals.write("thruway: cannot redirect the output: #{error.message}\n")
      end
    end

    # Whether neither stream is redirected.
    def idle?
      @redirect.values_at(:stdout, :stderr).none?
    end

    private

    def reopen(mode)
      STREAMS.each do |name, (number, io)|
        io.sync = true if @syncs && !io.closed?
        redirect(number, @redirect[name].to_s, mode) if @redirect[name]
      rescue SystemCallError, IOError => e
        yield e
      end
    end

    # Puts the new file in the place of the old one in one step: another thread's socket cannot get
    # the number, and a thread that writes meanwhile gets no IOError, as it would from `IO#reopen`.
    def redirect(number, path, mode)
      error = File.open(path, mode) { |file| System.put_descriptor(file.fileno, number) }
      raise SystemCallError.new(path, error) unless error.zero?
    end
  end
end

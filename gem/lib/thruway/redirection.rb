# frozen_string_literal: true

require_relative "failure"
require_relative "signals"

module Thruway
  # Where stdout and stderr go (`stdout_redirect`), and how often they are written.
  class Redirection
    def initialize(configuration)
      @syncs = configuration.syncs_output
      @redirect = configuration.redirect || {}
    end

    # At the start: files are emptied, unless they are to be continued.
    def begin(continues: false)
      reopen(continues || @redirect[:append] ? "a" : "w")
    rescue SystemCallError => e
      raise Failure, "cannot redirect the output: #{e.message}"
    end

    # On HUP: the files may have got other names. It may be called from a trap.
    def renew
      return Signals.write("thruway: HUP: there is no stdout_redirect to be reopened\n") if idle?

      reopen("a")
    rescue SystemCallError => e
      Signals.write("thruway: cannot redirect the output: #{e.message}\n")
    end

    # Whether both stay where they are.
    def idle?
      @redirect.values_at(:stdout, :stderr).none?
    end

    private

    def reopen(mode)
      { stdout: $stdout, stderr: $stderr }.each do |name, io|
        path = @redirect[name]
        io.reopen(path.to_s, mode) if path
        io.sync = true if @syncs
      end
    end
  end
end

# frozen_string_literal: true

module Thruway
  # The processors that this process may use. The library `etc` may be a gem in the application's
  # bundle.
  module Processors
    # A mask in hexadecimal; see proc_pid_status(5).
    MASK = /^Cpus_allowed:\s*([\h,]+)$/

    def self.count
      mask = File.read("/proc/self/status")[MASK, 1].to_s.delete(",").hex
      [mask.digits(2).sum, 1].max
    rescue SystemCallError
      1
    end
  end
end

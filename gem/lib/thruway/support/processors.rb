# frozen_string_literal: true

module Thruway
  # Counts the processors that this process may use. The library `etc` is not used, because it may
  # be a gem of the application's bundle.
  module Processors
    # The processor mask in hexadecimal; see proc_pid_status(5).
    MASK = /^Cpus_allowed:\s*([\h,]+)$/

    def self.count
      mask = File.read("/proc/self/status")[MASK, 1].to_s.delete(",").hex
      [mask.digits(2).sum, 1].max
    rescue SystemCallError
      1
    end
  end
end

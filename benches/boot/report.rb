# frozen_string_literal: true

# Writes the costs of a boot as the last act of the program: user and system time in seconds, and
# the resident memory in KiB.
at_exit do
  times = Process.times
  resident = File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1]
  File.write(ENV.fetch("BENCH_REPORT"), "#{times.utime} #{times.stime} #{resident}\n")
end

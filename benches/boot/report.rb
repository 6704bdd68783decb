# frozen_string_literal: true

# What a boot took, written when everything else has run: user and system time in seconds, and the
# memory that is in use, in KiB.
at_exit do
  times = Process.times
  resident = File.read("/proc/self/status")[/^VmRSS:\s+(\d+)/, 1]
  File.write(ENV.fetch("BENCH_REPORT"), "#{times.utime} #{times.stime} #{resident}\n")
end

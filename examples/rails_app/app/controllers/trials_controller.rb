# frozen_string_literal: true

# Answers that try a server: slow ones, busy ones, broken ones.
class TrialsController < ApplicationController
  LONGEST_SECONDS = 10.0

  # Waits, as for another service.
  def slow
    sleep seconds(0.5)
    render plain: "slept\n"
  end

  # Computes, as for a report.
  def busy
    clock = Process::CLOCK_THREAD_CPUTIME_ID
    over = Process.clock_gettime(clock) + seconds(0.05)
    nil while Process.clock_gettime(clock) < over
    render plain: "computed\n"
  end

  def broken
    raise "this page is broken, as it should be"
  end

  def up
    render plain: "up\n"
  end

  private

  def seconds(default)
    Float(params.fetch(:seconds, default)).clamp(0.0, LONGEST_SECONDS)
  end
end

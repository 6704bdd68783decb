# frozen_string_literal: true

# Requests that compute and wait for known times: what `cargo x bench serve-matrix` compares
# servers by.
class Shapes
  # By path, milliseconds one after another: above zero the thread computes, below zero it waits.
  SHAPES = {
    "/short" => [],
    "/cpu5" => [5],
    "/sleep50" => [-50],
    "/page" => [-4, 1.5, -6, 1.5],
    "/light" => [1, -1, 1],
    "/heavy" => [20, -10] * 4,
    "/cached" => [5],
    "/compute" => [200]
  }.freeze
  BODY = "#{'x' * 120}\n".freeze
  CACHED = "#{'x' * 10_239}\n".freeze

  def call(env)
    steps = SHAPES[env["PATH_INFO"]]
    return [404, { "content-type" => "text/plain", "content-length" => "0" }, []] unless steps

    steps.each { |step_ms| step_ms.positive? ? compute(step_ms) : sleep(-step_ms / 1000.0) }
    return cached if env["PATH_INFO"] == "/cached"

    [200, { "content-type" => "text/plain", "content-length" => BODY.bytesize.to_s }, [BODY]]
  end

  private

  # A page that caches may keep.
  def cached
    fields = { "content-type" => "text/plain", "content-length" => CACHED.bytesize.to_s,
               "cache-control" => "public, max-age=600" }
    [200, fields, [CACHED]]
  end

  # Processor time of this thread, with Ruby's lock held: it costs the same however many threads
  # compete.
  def compute(time_ms)
    clock = Process::CLOCK_THREAD_CPUTIME_ID
    over_ms = Process.clock_gettime(clock, :float_millisecond) + time_ms
    nil while Process.clock_gettime(clock, :float_millisecond) < over_ms
  end
end

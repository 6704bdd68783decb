# frozen_string_literal: true

require "booting"
require "etc"
require "freshener"
require "shellwords"

# Random edits between look-ups and during them, plain against each mode.
# `cargo x prove freshness --cases 100000` tries more of them.
class FreshnessTest < Minitest::Test
  include Booting

  PROGRAM = File.expand_path("../freshener.rb", __dir__)
  # The values of THRUWAY_BOOT for each mode.
  WORDS = { "validated" => "", "digest" => "digest", "frozen" => "frozen",
            "image" => "trust-image", "portable" => "portable" }.freeze
  FOLDERS = [File.expand_path("gem", File.dirname(Booting::THRUWAY)),
             File.expand_path("../../lib", __dir__)].freeze
  # The number of sequences that one Ruby runs.
  AT_ONCE = 125
  # The number of batches at the same time. A sequence mostly waits for its children.
  JOBS = Etc.nprocessors * 2
  # A limit only for a hanging batch. A busy machine takes minutes for one.
  SECONDS_MAX = "1800"
  # The modes in their order of use. The default promises most.
  MODES = %w[validated digest portable frozen validated image digest frozen].freeze
  # Each second round of modes has its files in memory: inodes and times are others there.
  MEMORY = "/dev/shm"

  def test_random_edits
    count = Booting.cases(1000)
    @start = @shown = now
    @done = 0
    batches = (0...count).each_slice(AT_ONCE).map { |numbers| [numbers.first, numbers.size] }
    wrong = at_once(batches.each_with_index) { |(first, size), index| batch(first, size, index) }
    assert_empty wrong.first(3), "#{wrong.size} of #{count} sequences differ"
  end

  private

  # The results of the block for all elements, computed by several threads.
  def at_once(all)
    all = all.to_a
    threads = Array.new(JOBS) {
      Thread.new {
        found = []
        while (one = all.shift)
          found.concat(yield(*one))
        end
        found
      }
    }
    threads.each { |thread| thread.report_on_exception = false }.flat_map(&:value)
  end

  def batch(first, size, index)
    place = (index / MODES.size).odd? && File.writable?(MEMORY) ? MEMORY : Dir.tmpdir
    found = compare(place, first, size, MODES[index % MODES.size])
    # A long run that is stopped has already printed its findings.
    found.each { |text| warn text } if ENV["THRUWAY_PROGRESS"]
    progress(@done += size)
    found
  end

  # Prints a line every few seconds, if `cargo x prove` requests progress.
  def progress(done)
    return unless ENV["THRUWAY_PROGRESS"] && now - @shown >= 5

    @shown = now
    warn "#{done} cases, #{(done / (now - @start)).round} a second"
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

  # The differences from the output of a plain Ruby.
  def compare(place, first, size, mode)
    Dir.mktmpdir("fresh", place) do |around|
      plain, packed = %w[plain packed].map { |name|
        "#{around}/#{name}".tap { |root|
          Dir.mkdir(root)
        }
      }
      go_through(plain, [first, size, mode])
      go_through(packed, [first, size, mode], "learn" => WORDS["digest"], "look" => WORDS[mode])
      (first...(first + size)).filter_map { |number| difference(plain, packed, number, mode) }
    end
  end

  def difference(plain, packed, number, mode)
    said = [plain, packed].map { |root| File.read("#{root}/#{number}.said") }
    return if said.uniq.size == 1

    "#{mode}, seed #{SEED}, sequence #{number}:\n#{said.join("\n-- with the pack:\n")}"
  end

  # Mounts are seen by no other process.
  def go_through(root, (first, size, mode), words = {})
    folders = FOLDERS.map { |folder| "-I#{folder}" }
    ruby = [RUBY, "--disable=gems", "-W0", *folders, PROGRAM].shelljoin
    commands = ["build", *(%w[age learn] if words.any?), "between", "look"].map do |step|
      next "sleep 0.04" if step == "age"

      boot = "FRESHENER_BOOT=#{words[step]} " if words[step]
      "#{boot}#{ruby} #{step} #{root} #{SEED} #{first} #{size} #{mode}"
    end
    alone = can_mount? ? %w[unshare --mount --propagation private] : []
    environment = can_mount? ? { "FRESHENER_MOUNTS" => "1" } : {}
    out, status = Open3.capture2e(environment, "timeout", SECONDS_MAX, *alone, "sh", "-c",
                                  commands.join(" && "))
    assert status.success?, "#{mode} #{words}: #{status}\n#{out}"
  end

  def can_mount?
    @can_mount ||= system("unshare", "--mount", "true", err: File::NULL) ? :yes : :no
    @can_mount == :yes
  end
end

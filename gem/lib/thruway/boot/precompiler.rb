# frozen_string_literal: true

module Thruway
  # Compiles files without running them, and reads YAML, so that a pack holds them before they are
  # needed. `thruway pack build --compile` runs this file.
  class Ahead
    # The way in which I18n reads translations; others are those of `YAML.load_file`.
    TRANSLATIONS = { symbolize_names: true, freeze: true }.freeze

    def initialize
      # Ruby loads a file in two steps, and this goes between them. Code without lines does nothing,
      # or has a syntax error that Ruby raises in the second step.
      @end = TracePoint.new(:script_compiled) do |event|
        code = event.instruction_sequence
        throw self if code&.path == @path && code.trace_points.any?
      end
    end

    # Compiles the Ruby files among `paths` and below them, and reads the YAML files.
    def add(paths, &trouble)
      paths.flat_map { |path| files_of(path) }.uniq.each do |file|
        file.end_with?(".yml", ".yaml") ? read(file) : compile(file)
      rescue SyntaxError, StandardError => e
        trouble&.call(file, e)
      end
    end

    # The folders of the bundle's gems that `require` searches.
    def gem_folders
      require "bundler"
      folders = Bundler.definition.specs.flat_map(&:full_require_paths)
      folders.select { |folder| File.directory?(folder) }
    end

    private

    def files_of(path)
      return [path] unless File.directory?(path)

      Dir.glob("**/*.{rb,yml,yaml}", base: path).sort.map { |name| File.join(path, name) }
         .select { |file| File.file?(file) }
    end

    def compile(path)
      @path = path
      catch(self) do
        @end.enable do
          Boot.see_first
          load(path)
        end
      end
    end

    # A document that is taken in one way may be refused in the other.
    def read(path)
      require "yaml"
      YAML.parse_file(path)
      ways = [-> { YAML.load_file(path) }, -> { YAML.unsafe_load_file(path, **TRANSLATIONS) }]
      ways.each do |load|
        load.call
      rescue StandardError
        nil
      end
    end
  end
end

# Called with `--gems` or `--no-gems`, and paths.
if $PROGRAM_NAME == __FILE__
  require_relative "../boot"
  abort "thruway: Ruby does not boot from a pack here" unless Thruway::Boot.running?

  begin
    ahead = Thruway::Ahead.new
    gems = ARGV.shift == "--gems" ? ahead.gem_folders : []
  rescue StandardError => e
    abort "thruway: the bundle's gems are not known: #{e.message.lines.first}"
  end
  # Gems bring templates, and files for other Rubies.
  ahead.add(gems)
  ahead.add(ARGV) do |path, error|
    reason = error.message.delete_prefix("#{path}:").lines.first
    warn "thruway: left out: #{path}: #{reason}"
  end
end

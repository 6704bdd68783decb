# frozen_string_literal: true

require_relative "../support/failure"

module Thruway
  # Evaluates a `config.ru` by `Rack::Builder`, to which gems add words, and which agents patch. The
  # application's own Gemfile decides which Rack that is, so it is not loaded before the application
  # loads it. A file without Rack is evaluated by `PlainBuilder`.
  class Builder
    # The application that the file at `path`, an absolute one, describes.
    def self.load(path)
      Object.autoload(:Rack, "rack") unless Object.const_defined?(:Rack)
      script = File.read(path, encoding: Encoding::UTF_8).sub(/^__END__\n.*\z/m, "")
      # Constants go where they would go in a file of their own, and words to a builder.
      code = "Thruway::Builder.new.instance_eval { [binding, self] }"
      scope, builder = TOPLEVEL_BINDING.eval(code)
      scope.eval(script, path)
      builder.to_app
    end

    def run(app = nil, &block)
      target.run(app || block)
    end

    def to_app = target.to_app

    private

    # Chosen by the first word of the file: by then it has set up its bundle.
    def target
      @target ||= Object.const_defined?(:Rack) && rack? ? Rack::Builder.new : PlainBuilder.new
    end

    # Not by `autoload`, which would load Rack here.
    def rack?
      Object.autoload?(:Rack).nil? && Rack.const_defined?(:Builder)
    end

    def respond_to_missing?(word, _all = false)
      target.respond_to?(word) || super
    end

    def method_missing(word, ...)
      target.respond_to?(word) ? target.public_send(word, ...) : super
    end
  end

  # The words of a `config.ru` that does without Rack.
  class PlainBuilder
    def initialize(default = nil, &block)
      @uses = []
      @maps = {}
      @run = default
      @warmup = nil
      @freezes = false
      instance_eval(&block) if block
    end

    def use(middleware, *arguments, **options, &block)
      seal_maps
      @uses << ->(app) { middleware.new(app, *arguments, **options, &block) }
    end

    def run(app = nil, &block)
      @run = app || block
    end

    def map(path, &block)
      @maps[path] = block
    end

    def warmup(callable = nil, &block)
      @warmup = callable || block
    end

    def freeze_app
      @freezes = true
    end

    def to_app
      seal_maps
      raise Failure, "config.ru says neither run nor map" unless @run || @mapped

      app = freeze_if_told(@run)
      @uses.reverse_each { |use| app = freeze_if_told(use.call(app)) }
      @warmup&.call(app)
      app
    end

    private

    # What is mapped so far belongs below the middleware that comes next.
    def seal_maps
      return if @maps.empty?

      maps, @maps, @mapped = @maps, {}, true
      @uses << ->(app) { url_map(app, maps) }
    end

    def url_map(app, maps)
      mapped = maps.transform_values { |block| PlainBuilder.new(app, &block).to_app }
      Rack::URLMap.new(app ? { "/" => app }.merge(mapped) : mapped)
    end

    def freeze_if_told(app)
      @freezes && app ? app.freeze : app
    end
  end
end

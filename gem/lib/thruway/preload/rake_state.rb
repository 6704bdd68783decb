# frozen_string_literal: true

# The state of Rake's application, on which a boot may depend: Rails before 7.1 and dotenv-rails
# choose the environment by the tasks that Rake is to run. While a template boots, the application
# has the state that it had in the command, and reads of the state are noted: a child whose Rake has
# another state by then cannot use what was booted. `preload_template.rb` loads this file into its
# own anonymous module.
class RakeState
  ATTRIBUTES = %i[name rakefile top_level_tasks].freeze
  METHODS = [*ATTRIBUTES, :options].freeze
  OF_OPTION = "options."

  class << self
    # The application of Rake, if there is one already.
    def application
      return if Object.autoload?(:Rake) || !Object.const_defined?(:Rake)

      ::Rake.instance_variable_get(:@application)
    end

    # The state as a String that can be compared; nil without an application, or if an option's
    # value cannot be compared. Streams are left out, since they are the same for all commands.
    def now
      application = self.application or return
      options = application.instance_variable_get(:@options).to_h
      Marshal.dump([ATTRIBUTES.map { |name| application.instance_variable_get(:"@#{name}") },
                    options.reject { |_, value| value.is_a?(IO) }.to_a])
    rescue TypeError
      nil
    end
  end

  # The reason why this boot cannot be a template; nil if there is none.
  attr_reader :objection

  # `learned` holds names of attributes and of options, with the values as `Marshal` writes them.
  def initialize(learned)
    @learned = learned.to_h { |name, value| [name, Marshal.load(value)] }
  end

  # Gives the application the learned state while the block runs. Returns the state, or nil if the
  # block has not read it, and the application, or nil if the block has defined no tasks.
  def while_booting(&block)
    ::Rake.application if @learned.any? && defined?(::Rake)
    application = RakeState.application
    return without_application(&block) unless application

    with_learned(application) do
      before = [RakeState.now, tasks(application)]
      was_read = reading?(application, &block)
      note_changes(before, application)
      [(before.first if was_read), (application if tasks(application) > before.last)]
    end
  end

  private

  # Runs the block when Rake has no application yet. An application that the block creates starts in
  # Rake's initial state, so there is no earlier state to compare.
  def without_application
    yield
    application = RakeState.application
    [RakeState.now, (application if application && tasks(application).positive?)]
  end

  def with_learned(application)
    names = METHODS.map { |name| :"@#{name}" }
    original = names.to_h { |name| [name, application.instance_variable_get(name)] }
    application.instance_variable_set(:@options, options = application.options.dup)
    @learned.each do |name, value|
      option = name.delete_prefix(OF_OPTION)
      next options[option] = value unless option == name

      application.instance_variable_set(:"@#{name}", value)
    end
    yield
  ensure
    original&.each { |name, value| application.instance_variable_set(name, value) }
  end

  # Whether the block reads the state. A method that the program has defined anew counts as read.
  def reading?(application)
    others = METHODS & application.singleton_methods(false)
    was_read = others.any?
    own = METHODS - others
    own.each { |name| application.define_singleton_method(name) { (was_read = true) && super() } }
    yield
    was_read
  ensure
    own&.each { |name| application.singleton_class.send(:remove_method, name) }
  end

  def note_changes(before, application)
    now = RakeState.now
    @objection = "it changes what Rake is to do" if now != before.first
    @objection = "Rake has options that cannot be compared" unless now
    @objection = "it makes another application of Rake" unless RakeState.application == application
  end

  def tasks(application) = application.instance_variable_get(:@tasks).to_h.size
end
